/** The grant of a stream to the worker that requests work. */
import {budgetProblem, isScarce, withGrant} from '../billing/budget.ts';
import {type Ceilings, sourcesProblem} from '../billing/ceilings.ts';
import {workerEvent} from '../billing/cost.ts';
import {type BucketRegion, bytePrice, crossRegionProblem, withRead} from '../billing/network.ts';
import {outputPrefix} from '../names.ts';
import type {RequestWrites} from '../records/request-writes.ts';
import {isRunnable, pausedFor, type Run} from '../records/run.ts';
import type {Stream} from '../records/stream.ts';
import {isAlive, type Worker, withoutWork} from '../records/worker.ts';
import {
  freeFromLiving,
  grantLease,
  type Holder,
  idleLeasesAfter,
  isClaimable,
  isLeasedTo,
  type LeaseKeys,
  returnedStream,
} from '../stream/lease.ts';
import {iso} from '../time.ts';
import type {TimelineEvent} from '../timeline.ts';
import {foundFault} from '../worker/liveness.ts';
import {beganWork} from './heard-from.ts';
import type {GrantDecision} from './requests.ts';

/** `hasOtherWork`: the worker holds another stream, or a job. */
export type StreamGrantState = {
  stream: Stream;
  run: Run | undefined;
  worker: Worker | undefined;
  hasOtherWork: boolean;
  /** Shards after a gap that the stream's last lease explains, and the epoch at that time. */
  waiting?: Waiting | undefined;
};

export type Waiting = {epoch: number; shards: readonly number[]};

/** Where the worker reads and writes, what the deployment allows, its worker bundle, and the keys of leases. */
export type GrantSettings = {
  bucket: string;
  region: BucketRegion;
  ceilings: Ceilings;
  bundle: string;
  keyOf: LeaseKeys;
};

/** After this many consecutive leases without a stored shard the machine is replaced: it may be broken, or in the wrong hands. */
const MOST_IDLE_LEASES = 3;

export function isGrantable(stream: Stream, holder: Holder): boolean {
  return isClaimable(stream) || isLeasedTo(stream, holder);
}

/** Leases the stream, unless the worker, the run or the budget has changed since the search. */
export function decideStreamGrant(
  {stream, run, worker, hasOtherWork, waiting}: StreamGrantState,
  holder: Holder,
  {bucket, region, ceilings, bundle, keyOf}: GrantSettings,
  now: number,
): GrantDecision {
  if (!isGrantable(stream, holder) || !run || !isRunnable(run)) return {};
  if (!worker || worker.incarnation !== holder.incarnation || worker.fault !== null) return {};
  const problem = sourcesProblem(run.spec ?? {}, ceilings);
  if (problem) return {writes: pauseForModel(run, problem, now)};
  const isHolder = isLeasedTo(stream, holder);
  if (crossRegionProblem(run, [worker.zone], region)) return {};
  const read_usd = isHolder ? 0 : stream.size_bytes * bytePrice(worker.zone, region);
  const withReadPaid = {...run, network_usd: run.network_usd + read_usd};
  if (budgetProblem(withReadPaid, worker.usd_per_hour, isHolder) || !isAlive(worker)) return {};
  // This request is late: a later request of the worker was granted other work.
  if (hasOtherWork) return {};
  // The worker restarted and asks for its own stream.
  const free = isHolder ? freeFromLiving(stream, worker, now) : stream;
  if (!isClaimable(free)) return {writes: {worker: withoutWork(worker), ...returnedStream(free, run, now)}};
  const ended = isHolder ? idleLeasesAfter(worker, stream) : worker.idle_leases;
  // Without a restart, the worker never received its last grant: the same lease continues.
  const isNew = !isHolder || worker.claimed_at === null;
  if (isNew && ended >= MOST_IDLE_LEASES)
    return {writes: {...(isHolder ? {stream: free} : {}), ...replaced(worker, now)}};
  const idle_leases = isNew ? ended + 1 : Math.max(1, ended);
  const kept_shards = waiting?.epoch === stream.epoch ? [...waiting.shards] : [];
  const leased = {...grantLease(free, holder, keyOf, now), kept_shards};
  const granted = withRead(leased, worker.zone, region);
  // Of many workers that ask at once, a scarce budget pays for only some. A write for each grant would make them wait for each other.
  const isCounted = !isHolder && isScarce(run, worker.usd_per_hour, ceilings.max_workers);
  const code = codeOf(run, worker, bundle);
  const served = {...(isCounted ? withGrant(run) : run), bundle: code.bundle};
  const lease = {run: run.run, stream: stream.stream, epoch: granted.epoch};
  const text = `${worker.name} works on ${lease.run}/${lease.stream} from sample ${granted.last_processed_sample_idx + 1}`;
  return {
    order: workOrder(run, granted, bucket),
    writes: {
      stream: granted,
      worker: {...beganWork(worker, lease, now), ...grantsAfter(worker, run.run), idle_leases},
      ...(isCounted || code.bundle !== run.bundle ? {run: {...served, updated_at: iso(now)}} : {}),
      events: [{kind: 'stream', ...lease, worker: worker.name, text}, ...code.events],
    },
  };
}

/**
 * The newest worker bundle that works on the run; the first lease of the run, and of each deployment, sets it. A change of the bundle is an
 * event, because shards of two bundles may differ in their last bits. The metadata of each shard names its bundle.
 */
function codeOf(
  {run, bundle}: Run,
  worker: Worker,
  deployed: string,
): {bundle: string | null; events: TimelineEvent[]} {
  if (worker.bundle === null || worker.bundle === bundle) return {bundle, events: []};
  if (bundle === null) return {bundle: worker.bundle, events: []};
  if (worker.bundle !== deployed) return {bundle, events: []};
  const [old, present] = [bundle, deployed].map(digest => digest.slice(0, 12));
  const text = `Run ${run} continues with worker bundle ${present}: its earlier shards are from ${old} and may differ in their last bits`;
  return {bundle: deployed, events: [{kind: 'run', run, text}]};
}

function grantsAfter({last_run, model_loads}: Worker, run: string) {
  return {last_run: run, model_loads: model_loads + (run === last_run ? 0 : 1)};
}

function replaced(worker: Worker, now: number): RequestWrites {
  const fault = foundFault(`its last ${worker.idle_leases} leases ended without a stored shard`);
  const text = `${worker.name} is replaced: ${fault}`;
  const events = [workerEvent(worker, text)];
  return {worker: {...withoutWork(worker), fault, updated_at: iso(now)}, events};
}

function pauseForModel(run: Run, problem: string, now: number) {
  const text = `Run ${run.run} is paused: ${problem}`;
  const paused = {...run, ...pausedFor(problem, now)};
  return {run: paused, events: [{kind: 'run' as const, run: run.run, text}]};
}

function workOrder({run, spec, spec_hash, expire_days}: Run, granted: Stream, bucket: string) {
  const {stream, worker_id, epoch, lease_key, total_shards, kept_shards} = granted;
  const {object, generation, size_bytes, crc32c} = granted;
  return {
    action: 'work',
    lease: {run, stream, epoch},
    work: {
      ...{run, stream, worker_id, bucket, spec, spec_hash},
      dataset: {object, generation, size_bytes, crc32c},
      output_prefix: outputPrefix(run, stream),
      lease_key,
      stored_shards: total_shards,
      kept_shards,
      ...(expire_days === null ? {} : {expire_days}),
    },
  };
}
