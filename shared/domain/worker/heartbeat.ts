/** The worker after a heartbeat, or after a request for work, of its living incarnation. */
import {accrue} from '../billing/cost.ts';
import {iso} from '../time.ts';
import {NO_WORK, type Phase, readySince, type Worker} from './worker.ts';

const PROGRESS = ['activity', 'work', 'samples_done', 'tokens_done', 'shards_done'] as const;

/** A request for work, which counts as progress each time. */
export function askedForWork(worker: Worker, now: number): Worker {
  return {...heardFrom(worker, {...NO_WORK, activity: 'idle'}, now), progress_at: iso(now)};
}

/** A heartbeat proves that the agent lives, and ends booting. */
export function heardFrom(
  worker: Worker,
  said: Pick<Worker, keyof typeof NO_WORK> & {activity: string},
  now: number,
): Worker {
  const phase = phaseAfter(worker, said.activity, said.work);
  return {
    ...accrue(worker, now),
    ...said,
    phase,
    phase_since_at: phase === worker.phase ? worker.phase_since_at : iso(now),
    ready_at: worker.ready_at ?? readyBySaying(worker, now),
    hello_at: worker.hello_at ?? iso(now),
    suspect: worker.fault === null ? null : worker.suspect,
    progress_at: PROGRESS.some(field => said[field] !== worker[field]) ? iso(now) : worker.progress_at,
    heartbeat_at: iso(now),
  };
}

/**
 * Billing start of a node that sends a heartbeat before a tick has seen it READY.
 * The creation of a node in the queue begins at an unknown time, so its billing starts now.
 */
function readyBySaying(
  {provisioning, provider_state, provider_since_at, phase_since_at, unready_at}: Worker,
  now: number,
) {
  const isBegun = provisioning === 'node' || provider_state !== null;
  return isBegun ? readySince([phase_since_at, provider_since_at, unready_at], now) : iso(now);
}

function phaseAfter(worker: Worker, activity: string, work: string | null): Phase {
  if (worker.phase === 'draining') return 'draining';
  if (activity === 'setup') return 'booting';
  return work === null ? 'idle' : 'working';
}
