import type {Limits, Observation} from './life.ts';
import {isBadHost, isBrokenBy, nodeStanding, queueStanding, type Refusal, symptomText} from './provider.ts';
import {isOlderThan} from './time.ts';
import type {Worker} from './worker.ts';

/**
 * Why a life of a slot ended before its work did. `taken`: Cloud TPU took the node, or it was given back. `setup`: it never got
 * as far as working. `broken`: its machine cannot work, whatever it is given. `silent` and `hung`: its agent stopped talking, or
 * talked and did nothing, for which what it worked on may be the reason. `asked`: a message asked for it.
 */
export type Death = {
  kind: 'taken' | 'setup' | 'broken' | 'silent' | 'hung' | 'asked';
  cause: string;
  /** Its zone gave no node for it, and why. */
  refusal?: Refusal;
};

/** Why the node must be replaced, or undefined while it may live. `worker` shows what was observed already. */
export function causeOfDeath(
  worker: Worker,
  observation: Observation,
  limits: Limits,
  now: number,
): Death | undefined {
  if (worker.fault !== null)
    return {kind: isBadHost(worker.fault) ? 'broken' : 'taken', cause: `its agent said: ${worker.fault}`};
  if (observation.kind === 'absent') return vanished(worker, limits, now);
  if (observation.kind === 'found') {
    const death = faultOfQueue(worker, observation) ?? faultOfNode(worker);
    if (death) return death;
  }
  // As it was seen last, also where nobody can look now.
  if (nodeStanding(worker) === 'mending') return tooLongUnderRepair(worker, limits, now);
  const isLate = (limit_s: number) => isOlderThan(worker.phase_since_at, limit_s, now);
  switch (worker.phase) {
    case 'creating':
      return notReady(worker, limits, now);
    case 'booting':
      if (worker.heartbeat_at === null && isLate(limits.boot_s))
        return {kind: 'setup', cause: `it is READY but said nothing within ${limits.boot_s} s`};
      if (worker.heartbeat_at !== null && isLate(limits.setup_s))
        return {kind: 'setup', cause: `its setup took longer than ${limits.setup_s} s`};
      return worker.heartbeat_at === null ? undefined : withClues(worker, silence(worker, limits, now));
    default:
      return withClues(worker, silence(worker, limits, now) ?? standstill(worker, limits, now));
  }
}

/**
 * What was asked for and not seen yet may still come, for a while; what was seen and is not there any more has failed late, which is how
 * a zone with nothing left often says so.
 */
function vanished(worker: Worker, limits: Limits, now: number): Death | undefined {
  if (worker.phase !== 'creating') return {kind: 'taken', cause: 'it vanished from Cloud TPU'};
  if (worker.provider_state === null && worker.queue_state === null) return notReady(worker, limits, now);
  return {
    kind: 'setup',
    cause: 'it vanished while it was made: its operation failed late',
    refusal: 'no-capacity',
  };
}

/** How long it may take until the node is READY: in the queue until its request ends, and then as long as any other. */
function notReady(worker: Worker, limits: Limits, now: number): Death | undefined {
  const {valid_until_at} = worker;
  if (queueStanding(worker) === 'waiting' && nodeStanding(worker) === null && valid_until_at !== null) {
    if (!isOlderThan(valid_until_at, 0, now)) return undefined;
    return {
      kind: 'setup',
      cause: `the queue gave it nothing until ${valid_until_at}`,
      refusal: 'no-capacity',
    };
  }
  const since = worker.queue_state === null ? worker.phase_since_at : worker.provider_since_at;
  if (!isOlderThan(since, limits.create_s, now)) return undefined;
  return {kind: 'setup', cause: `it was not READY within ${limits.create_s} s`, refusal: 'transient'};
}

function silence(worker: Worker, limits: Limits, now: number): Death | undefined {
  if (!isOlderThan(worker.heartbeat_at ?? worker.phase_since_at, limits.silent_s, now)) return undefined;
  return {kind: 'silent', cause: `it has said nothing for ${limits.silent_s} s`};
}

/** An agent that beats and does nothing new, not even ask for work: it hangs. Compiling and loading are slow, and end too. */
function standstill(worker: Worker, limits: Limits, now: number): Death | undefined {
  const {activity, work} = worker;
  const limit_s =
    activity === 'compiling' ? limits.compile_s : activity === 'loading' ? limits.load_s : limits.stall_s;
  if (!isOlderThan(worker.progress_at ?? worker.phase_since_at, limit_s, now)) return undefined;
  return {
    kind: 'hung',
    cause: `it has stood still for ${limit_s} s (${[activity, work].filter(Boolean).join(', ')})`,
  };
}

/** What Cloud TPU knows of the node's trouble is told with it, and takes the blame where no stream can have caused it. */
function withClues({health, symptoms}: Worker, death: Death | undefined): Death | undefined {
  if (!death) return undefined;
  const ill = health === 'TIMEOUT' || health === 'UNHEALTHY_TENSORFLOW' ? [`its health is ${health}`] : [];
  const clues = [...ill, ...symptoms.map(symptomText)];
  if (clues.length === 0) return death;
  const kind = isBrokenBy(symptoms) ? 'broken' : death.kind;
  return {kind, cause: `${death.cause}; ${clues.join('; ')}`};
}

/** Google mends it: its silence says nothing, and waiting is cheaper than a new node, within a limit. */
function tooLongUnderRepair(worker: Worker, limits: Limits, now: number): Death | undefined {
  if (!isOlderThan(worker.provider_since_at, limits.repair_s, now)) return undefined;
  const {provider_state, health} = worker;
  const what = provider_state === 'READY' ? health : provider_state;
  return {kind: 'taken', cause: `it has been ${what} for over ${limits.repair_s} s`};
}

function faultOfNode(worker: Worker): Death | undefined {
  const {provider_state} = worker;
  const standing = nodeStanding(worker);
  if (standing === null && worker.phase !== 'creating')
    return {kind: 'taken', cause: `its node vanished; its queued resource is ${worker.queue_state}`};
  if (standing !== 'over') return undefined;
  return {
    kind: 'taken',
    cause: provider_state === 'PREEMPTED' ? 'it was preempted' : `its state is ${provider_state}`,
  };
}

/** A queued resource whose node is lost is never fulfilled again, and one that failed keeps its place: both must go. */
function faultOfQueue(worker: Worker, {queued}: Observation & {kind: 'found'}): Death | undefined {
  if (!queued || queueStanding({queue_state: queued.state}) !== 'over') return undefined;
  const {state, initiator, error} = queued;
  if (state === 'FAILED') {
    const reason = error?.message ?? 'no reason given';
    const cause = `its queued resource FAILED: ${reason}`;
    return worker.phase === 'creating'
      ? {kind: 'setup', cause, refusal: error?.kind ?? 'no-capacity'}
      : {kind: 'taken', cause};
  }
  const by = initiator === 'SERVICE' ? ' by Cloud TPU' : initiator === 'USER' ? ' by somebody' : '';
  return {kind: 'taken', cause: `its queued resource is ${state}${by}`};
}
