import {isOlderThan} from './time.ts';
import type {Limits, Observation, Worker} from './worker.ts';

/** Why the node must be replaced, or undefined while it may live. */
export function causeOfDeath(
  worker: Worker,
  observation: Observation,
  limits: Limits,
  now: number,
): string | undefined {
  if (observation.kind === 'absent' && worker.phase !== 'creating') return 'it vanished from Cloud TPU';
  if (observation.kind === 'node') {
    if (isUnderRepair(observation.state)) return tooLongUnderRepair(worker, observation.state, limits, now);
    const fault = faultOfState(observation.state);
    if (fault) return fault;
  }
  switch (worker.phase) {
    case 'creating':
      return isOlderThan(worker.phase_since_at, limits.create_s, now)
        ? `it was not READY within ${limits.create_s} s`
        : undefined;
    case 'booting':
      if (worker.heartbeat_at === null)
        return isOlderThan(worker.phase_since_at, limits.boot_s, now)
          ? `it is READY but said nothing within ${limits.boot_s} s`
          : undefined;
      if (isOlderThan(worker.phase_since_at, limits.setup_s, now))
        return `its setup took longer than ${limits.setup_s} s`;
      return silence(worker, limits, now);
    default:
      return silence(worker, limits, now);
  }
}

function silence(worker: Worker, limits: Limits, now: number): string | undefined {
  return isOlderThan(worker.heartbeat_at ?? worker.phase_since_at, limits.silent_s, now)
    ? `it has said nothing for ${limits.silent_s} s`
    : undefined;
}

function isUnderRepair(state: string): boolean {
  return state === 'RESTARTING' || state === 'REIMAGING' || state === 'REPAIRING';
}

/** Google mends it: its silence says nothing, and waiting is cheaper than a new node, within a limit. */
function tooLongUnderRepair(worker: Worker, state: string, limits: Limits, now: number): string | undefined {
  return isOlderThan(worker.heartbeat_at ?? worker.phase_since_at, limits.repair_s, now)
    ? `it has been ${state} for over ${limits.repair_s} s`
    : undefined;
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
