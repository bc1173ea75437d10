import {parseJobWork} from '../names.ts';
import type {Worker} from '../records/worker.ts';
import {isOlderThan, utcText} from '../time.ts';
import {bootingHosts, hostText, quietestHost, subjectOf} from './hosts.ts';
import type {Limits} from './limits.ts';
import type {FoundNode, Observation} from './observation.ts';
import {
  isBadHost,
  isBrokenBy,
  isUp,
  nodeStanding,
  queueStanding,
  type Refusal,
  symptomText,
} from './provider-states.ts';
import {isServedFor, type Moment} from './served-time.ts';

/**
 * Why an incarnation ended before its work did.
 * `taken`: Cloud TPU took the node. `setup`: the node never became READY.
 * `unheard`: the node is READY, and its host never sent anything. `boot`: the host did, and its boot failed before the agent started.
 * `broken`: the machine cannot run any work.
 * `crashed`: the agent released its stream with a failure of its machine.
 * `silent`: the agent stopped sending. `hung`: the agent sends heartbeats and makes no progress.
 * A stream may cause silence and hanging.
 * `asked`: a message requested the end.
 */
export type Death = {
  kind: 'taken' | 'setup' | 'unheard' | 'boot' | 'broken' | 'crashed' | 'silent' | 'hung' | 'asked';
  cause: string;
  /** Set if the zone gave no node. */
  refusal?: Refusal;
};

export const taken = (cause: string): Death => ({kind: 'taken', cause});
const notMade = (cause: string, refusal: Refusal): Death => ({kind: 'setup', cause, refusal});

/** True if the run that the machine worked on may have caused the death. */
export function isMachineDeath({kind}: Death): boolean {
  return kind === 'silent' || kind === 'hung' || kind === 'broken' || kind === 'crashed';
}

/** True if the node was READY and its agent never started, which is evidence about boots. */
export const isFailedBoot = ({kind}: Death) => kind === 'unheard' || kind === 'boot';

/** Why the node must be replaced, or undefined while it may live. `worker` already records the observation. */
export function causeOfDeath(
  worker: Worker,
  observation: Observation,
  limits: Limits,
  moment: Moment,
): Death | undefined {
  const {now, servedTime} = moment;
  if (worker.fault !== null) return saidBy(worker, worker.fault);
  if (observation.kind === 'absent') return vanished(worker, limits, now);
  if (observation.kind === 'found') {
    const death = faultOfQueue(worker, observation) ?? faultOfNode(worker);
    if (death) return death;
  }
  // The newest known state counts, even if the zone does not answer now.
  if (nodeStanding(worker) === 'mending') return tooLongUnderRepair(worker, limits, now);
  const isLate = (limit_s: number) => isServedFor(servedTime, worker.phase_since_at, limit_s);
  switch (worker.phase) {
    case 'creating':
      return notReady(worker, limits, now);
    case 'booting': {
      const {host, at} = quietestHost(worker);
      if (at === null) {
        const who = worker.host_count === 1 ? 'it' : `its ${hostText(host, worker.host_count)}`;
        const cause = `${who} is ${worker.provider_state ?? 'READY'} but said nothing within ${limits.boot_s} s`;
        return isLate(limits.boot_s) ? {kind: 'unheard', cause} : undefined;
      }
      return withClues(worker, unfinishedBoot(worker, limits, moment));
    }
    default:
      return withClues(worker, silence(worker, limits, moment) ?? standstill(worker, limits, moment));
  }
}

/**
 * A node that was requested and never listed may still appear for `UNLISTED_S`.
 * A node that was listed while it was being created and is absent now has failed late, as often happens in zones without capacity.
 */
function vanished(worker: Worker, limits: Limits, now: number): Death | undefined {
  if (worker.phase !== 'creating') return taken('it vanished from Cloud TPU');
  if (worker.provider_state === null && worker.queue_state === null) return notReady(worker, limits, now);
  return notMade('it vanished while it was made: its operation failed late', 'no-capacity');
}

/** A requested node that no list shows for this many seconds counts as never made. */
const UNLISTED_S = 900;

/** A request in the queue may wait until it expires. A listed node has `create_s` to become READY. */
function notReady(worker: Worker, limits: Limits, now: number): Death | undefined {
  const {valid_until_at} = worker;
  if (queueStanding(worker) === 'waiting' && nodeStanding(worker) === null && valid_until_at !== null) {
    if (!isOlderThan(valid_until_at, 0, now)) return undefined;
    return notMade(`the queue gave it nothing until ${utcText(valid_until_at)}`, 'no-capacity');
  }
  const since = worker.queue_state === null ? worker.phase_since_at : worker.provider_since_at;
  const isListed = nodeStanding(worker) !== null || worker.queue_state !== null;
  const limit_s = isListed ? limits.create_s : Math.min(UNLISTED_S, limits.create_s);
  if (!isOlderThan(since, limit_s, now)) return undefined;
  return notMade(`it was not READY within ${limit_s} s`, 'transient');
}

const FOUND = 'the control plane found that ';

/** A fault that no host reported. */
export const foundFault = (text: string) => `${FOUND}${text}`;

/** The fault that the host reported, in its boot or by its agent, or that the control plane found. */
function saidBy({phase}: Worker, fault: string): Death {
  if (fault.startsWith(FOUND)) return {kind: 'crashed', cause: fault};
  if (isBadHost(fault)) return {kind: 'broken', cause: `its agent said: ${fault}`};
  if (phase === 'booting') return {kind: 'boot', cause: `its boot failed: ${fault}`};
  return {kind: 'crashed', cause: `its agent said: ${fault}`};
}

/** A host that sent messages but never started its agent has a failed boot, which no silence guard holds. A host that restarts is silent. */
function unfinishedBoot(worker: Worker, limits: Limits, moment: Moment): Death | undefined {
  const [host] = bootingHosts(worker);
  const late = worker.boot_step ?? (host === undefined ? null : hostText(host, worker.host_count));
  const step = late === null ? '' : ` (${late})`;
  const silent = silence(worker, limits, moment);
  if (silent && worker.agent_at !== null) return silent;
  if (silent) return {kind: 'boot', cause: `${silent.cause} in its boot${step}`};
  if (!isServedFor(moment.servedTime, worker.phase_since_at, limits.setup_s)) return undefined;
  return {kind: 'boot', cause: `its boot took longer than ${limits.setup_s} s${step}`};
}

function silence(worker: Worker, limits: Limits, {servedTime}: Moment): Death | undefined {
  const {host, at} = quietestHost(worker);
  if (!isServedFor(servedTime, at ?? worker.phase_since_at, limits.silent_s)) return undefined;
  return {kind: 'silent', cause: `${subjectOf(worker, host)} has said nothing for ${limits.silent_s} s`};
}

/** An agent that sends heartbeats without progress hangs. Compiling and loading have their own limits. */
function standstill(worker: Worker, limits: Limits, {servedTime}: Moment): Death | undefined {
  const {activity, work} = worker;
  // A job reports no progress; the time at which it is due limits it.
  if (parseJobWork(work) !== undefined) return undefined;
  const limit_s =
    activity === 'compiling' ? limits.compile_s : activity === 'loading' ? limits.load_s : limits.stall_s;
  if (!isServedFor(servedTime, worker.progress_at ?? worker.phase_since_at, limit_s)) return undefined;
  return {
    kind: 'hung',
    cause: `it has made no progress for ${limit_s} s (${[activity, work].filter(Boolean).join(', ')})`,
  };
}

/** Adds health and symptoms of the node to the cause. A symptom that no stream can cause makes the machine `broken`. */
function withClues({health, symptoms}: Worker, death: Death | undefined): Death | undefined {
  if (!death) return undefined;
  const ill = health === 'TIMEOUT' || health === 'UNHEALTHY_TENSORFLOW' ? [`its health is ${health}`] : [];
  const clues = [...ill, ...symptoms.map(symptomText)];
  if (clues.length === 0) return death;
  const kind = isBrokenBy(symptoms) ? 'broken' : death.kind;
  return {kind, cause: `${death.cause}; ${clues.join('; ')}`};
}

/** During a repair by Google, silence is normal. Up to `repair_s`, waiting is cheaper than a new node. */
function tooLongUnderRepair(worker: Worker, limits: Limits, now: number): Death | undefined {
  if (!isOlderThan(worker.provider_since_at, limits.repair_s, now)) return undefined;
  const {provider_state, health} = worker;
  const what = isUp(provider_state) ? health : provider_state;
  return taken(`it has been ${what} for over ${limits.repair_s} s`);
}

function faultOfNode(worker: Worker): Death | undefined {
  const {provider_state} = worker;
  if (nodeStanding(worker) !== 'over') return undefined;
  return taken(provider_state === 'PREEMPTED' ? 'it was preempted' : `its state is ${provider_state}`);
}

/** A queued resource that lost its node never gets another. A failed resource keeps its place. Both must be deleted. */
function faultOfQueue(worker: Worker, {queued}: FoundNode): Death | undefined {
  if (!queued || queueStanding({queue_state: queued.state}) !== 'over') return undefined;
  const {state, initiator, error} = queued;
  if (state === 'FAILED') {
    const reason = error?.message ?? 'no reason given';
    const cause = `its queued resource FAILED: ${reason}`;
    return worker.phase === 'creating'
      ? {kind: 'setup', cause, refusal: error?.kind ?? 'no-capacity'}
      : taken(cause);
  }
  const by = initiator === 'SERVICE' ? ' by Cloud TPU' : initiator === 'USER' ? ' by a user' : '';
  return taken(`its queued resource is ${state}${by}`);
}
