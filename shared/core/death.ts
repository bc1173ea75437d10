import {isOlderThan} from './time.ts';
import type {Limits, Observation, Worker} from './worker.ts';

/**
 * Why a life of a slot ended before its work did. `taken`: Cloud TPU took the node. `setup`: it never got as far as working.
 * `silent` and `hung`: its agent stopped talking, or talked and did nothing, for which what it worked on may be the reason.
 */
export type Death = {kind: 'taken' | 'setup' | 'silent' | 'hung'; cause: string};

/** Why the node must be replaced, or undefined while it may live. */
export function causeOfDeath(
  worker: Worker,
  observation: Observation,
  limits: Limits,
  now: number,
): Death | undefined {
  if (observation.kind === 'absent' && worker.phase !== 'creating')
    return {kind: 'taken', cause: 'it vanished from Cloud TPU'};
  if (observation.kind === 'node') {
    const {state} = observation;
    if (isUnderRepair(state)) return tooLongUnderRepair(worker, state, limits, now);
    const cause = faultOfState(state);
    if (cause) return {kind: 'taken', cause};
  }
  const isLate = (limit_s: number) => isOlderThan(worker.phase_since_at, limit_s, now);
  switch (worker.phase) {
    case 'creating':
      if (!isLate(limits.create_s)) return undefined;
      return {kind: 'setup', cause: `it was not READY within ${limits.create_s} s`};
    case 'booting':
      if (worker.heartbeat_at === null && isLate(limits.boot_s))
        return {kind: 'setup', cause: `it is READY but said nothing within ${limits.boot_s} s`};
      if (worker.heartbeat_at !== null && isLate(limits.setup_s))
        return {kind: 'setup', cause: `its setup took longer than ${limits.setup_s} s`};
      return worker.heartbeat_at === null ? undefined : silence(worker, limits, now);
    default:
      return silence(worker, limits, now) ?? standstill(worker, limits, now);
  }
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

function isUnderRepair(state: string): boolean {
  return state === 'RESTARTING' || state === 'REIMAGING' || state === 'REPAIRING';
}

/** Google mends it: its silence says nothing, and waiting is cheaper than a new node, within a limit. */
function tooLongUnderRepair(worker: Worker, state: string, limits: Limits, now: number): Death | undefined {
  if (!isOlderThan(worker.heartbeat_at ?? worker.phase_since_at, limits.repair_s, now)) return undefined;
  return {kind: 'taken', cause: `it has been ${state} for over ${limits.repair_s} s`};
}

/** The other Node states of the v2 API. What is no sign of life is a loss, because a preemption shows itself under many names. */
function faultOfState(state: string): string | undefined {
  switch (state) {
    // An agent may speak before its node says READY: `create_s`, `boot_s` and silence are the limits here.
    case 'READY':
    case 'CREATING':
    case 'STARTING':
    case 'UNHIDING':
    case 'UNKNOWN':
    case 'STATE_UNSPECIFIED':
      return undefined;
    case 'PREEMPTED':
      return 'it was preempted';
    default:
      return `its state is ${state}`;
  }
}
