/** Requests for work: leases a pending stream of the first run in order of service to the worker that asks. */
import {budgetProblem, isScarce, withGrant} from '../../domain/billing/budget.ts';
import {modelProblem} from '../../domain/billing/ceilings.ts';
import {streamFor} from '../../domain/fleet/pool.ts';
import {outputPrefix, parseWork, paths, streamId} from '../../domain/names.ts';
import {acceptsCode, withCode} from '../../domain/run/code.ts';
import {isRunnable, type Run} from '../../domain/run/run.ts';
import {
  byPreference,
  freeFromLiving,
  isClaimable,
  isLeasedTo,
  type Loaded,
  grantLease as leaseTo,
  loadingOf,
} from '../../domain/stream/lease.ts';
import {placeAmong, shuffled, spreadOver} from '../../domain/stream/spread.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import {iso} from '../../domain/time.ts';
import {heardFrom} from '../../domain/worker/heartbeat.ts';
import {isAlive, NO_WORK, type Worker} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import {readPool} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {PENDING, runRecords, skipIfInvalid, streamRecords, workerRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {jobOf} from '../documents/job-documents.ts';
import {returnStream, workOf} from '../documents/lease-documents.ts';
import {registerStream} from '../streams/register-stream.ts';
import {type Asked, requesterOf} from './answers.ts';

type LeaseRequest = Asked<'lease'>;

/** Limits of one request: streams to try, and runs to search. */
const MOST_TRIES = 5;
const MOST_RUNS = 10;

/** Outcome of a search: the order of a stream, or the reason why the worker shall ask again soon. `isRaced`: others took each stream. */
export type Found = {order: object} | {soon: string; isRaced: boolean};

/** Tries few streams at a place of its own, so each of many workers costs as many transactions as a single worker. Undefined: no stream waits. */
export async function grantStream(
  deps: Deps,
  request: LeaseRequest,
  worker: Worker,
  asker: string,
): Promise<Found | undefined> {
  let tries = 0;
  const {bundle: deployed} = deps.config;
  const search = {worker, loaded: request.loaded ?? null, asker, deployed, left: MOST_RUNS, isCut: false};
  for await (const open of candidates(deps, search)) {
    if (tries === MOST_TRIES) return {soon: `others took ${MOST_TRIES} streams: ask again`, isRaced: true};
    tries += 1;
    const {parent, stream} = open;
    await skipIfInvalid(deps.log, () => registerNewest(deps, parent, stream));
    const grant = () => deps.store.transaction(tx => tryGrant(deps, tx, request, stream));
    const order = await skipIfInvalid(deps.log, grant);
    if (order) return {order};
  }
  const isRaced = false;
  if (tries > 0) return {soon: `others took ${tries} streams: ask again`, isRaced};
  return search.isCut ? {soon: `${MOST_RUNS} runs had no stream: ask again`, isRaced} : undefined;
}

/** A stream that the worker may be granted, and its run. */
type Open = {parent: Run; stream: Stream};

/** Registers the newest generation of the stream: its event may be late, and workers cannot read an overwritten generation. */
async function registerNewest(deps: Deps, parent: Run, {stream, object, generation}: Stream): Promise<void> {
  const present = await deps.objects.head(object);
  if (present && present.generation !== generation) await registerStream(deps, parent, object, stream);
}

/** The search of one request: the runs that it may still search, and whether a run with pending streams was left out. */
type Search = {
  worker: Worker;
  loaded: Loaded;
  asker: string;
  deployed: string;
  left: number;
  isCut: boolean;
};

/** Pending streams to read for one choice: each costs a read, and the worker needs a single stream. */
const PAGE = 2;

/** Pending streams to read where a page is too small: a short run, or a place where others were faster. */
const WIDE_PAGE = 10;

/** Age up to which requests share the list of active runs. A grant reads its run again in its transaction, whatever the age. */
const SHARED_MS = 2000;

/** Yields streams of the shared list of active runs. Then yields those of runs that became active since, so no worker waits for them. */
async function* candidates(deps: Deps, search: Search): AsyncGenerator<Open> {
  const began_ms = deps.now();
  const shared = await deps.activeRuns.readSince(began_ms - SHARED_MS, deps);
  yield* candidatesOf(deps, search, shared);
  const known = new Set(shared.map(({run}) => run));
  const present = await deps.activeRuns.readSince(began_ms, deps);
  const others = present.filter(({run}) => !known.has(run));
  yield* candidatesOf(deps, search, others);
}

/**
 * The runs that may serve the worker, in their order of service. Among runs of equal rank the oldest comes first, and each asker has
 * an order of its own for the others. Runs without a pending stream at the last tick come last: each would cost a search.
 */
function servedFirst(runs: readonly Run[], {worker, loaded, asker, deployed}: Search): Run[] {
  const served = runs
    .filter(run => !budgetProblem(run, worker.usd_per_hour) && acceptsCode(run, worker.bundle, deployed))
    .sort(byPreference(loaded))
    .sort((one, other) => Number(isServedOut(one)) - Number(isServedOut(other)));
  const rankOf = (run: Run) => [isServedOut(run), run.priority, loadingOf(run, loaded), run.affinity].join();
  const groups = [...Map.groupBy(served, rankOf).values()];
  return groups.flatMap(([oldest, ...others]) => (oldest ? [oldest, ...spreadOver(others, asker)] : []));
}

/** Yields the stream that is leased to the worker already, then pending streams of each run. */
async function* candidatesOf(deps: Deps, search: Search, active: readonly Run[]): AsyncGenerator<Open> {
  const {worker} = search;
  const runs = active.filter(run => isRunnable(run) && run.pool === worker.pool);
  const work = parseWork(worker.work);
  const parent = runs.find(({run}) => run === work?.run);
  if (parent && work) {
    const own = await skipIfInvalid(deps.log, () => streamRecords.get(deps.store, parent.run, work.stream));
    if (own && isLeasedTo(own, {worker: worker.name, incarnation: worker.incarnation}))
      yield {parent, stream: own};
  }
  for (const run of servedFirst(runs, search)) {
    if (run.affinity === 'fixed') {
      const pool = await readPool(deps, run.pool);
      const id = pool && streamFor(pool, run, worker.name);
      if (id === undefined) continue;
      const its = await skipIfInvalid(deps.log, () => streamRecords.get(deps.store, run.run, streamId(id)));
      if (its && isClaimable(its)) yield {parent: run, stream: its};
    } else if (search.left > 0) {
      search.left -= 1;
      yield* pendingOf(deps, run, search.asker);
    } else search.isCut ||= !isServedOut(run);
  }
}

function isServedOut({affinity, streams_pending, streams_in_progress}: Run): boolean {
  return affinity === 'any' && streams_pending === 0 && streams_in_progress > 0;
}

/** Yields pending streams of the run from a place of the asker's own on. Too few streams there: reads from the first stream on. */
async function* pendingOf(deps: Deps, run: Run, asker: string): AsyncGenerator<Open> {
  const read = (limit: number, after?: string) =>
    deps.store.query(paths.streams(run.run), {where: [PENDING], limit, ...(after && {after})});
  const isShort = run.streams_pending <= WIDE_PAGE;
  const tried = new Set<string>();
  for (const page of [PAGE, WIDE_PAGE]) {
    const place = `${asker}, ${page}`;
    const indexes = isShort && page === PAGE ? undefined : await deps.activeRuns.indexesOf(run, deps.store);
    const behind = indexes && (await read(page, placeAmong(indexes, place)));
    const isEnough = behind?.length === page;
    const found = isEnough ? behind : await read(WIDE_PAGE);
    const pending = streamRecords.parseAll(found, error => deps.log('ERROR', error.message));
    const others = pending.filter(({stream}) => !tried.has(stream));
    for (const stream of shuffled(others, place, ({stream}) => stream)) {
      tried.add(stream.stream);
      yield {parent: run, stream};
    }
    if (!isEnough && found.length < WIDE_PAGE) return;
  }
}

async function tryGrant(deps: Deps, tx: Transaction, request: LeaseRequest, {run, stream}: Stream) {
  const holder = requesterOf(request);
  // The stream comes first: a lost race costs a single read.
  const current = await streamRecords.get(tx, run, stream);
  if (!current || !(isClaimable(current) || isLeasedTo(current, holder))) return undefined;
  const parent = await runRecords.get(tx, run);
  const worker = await workerRecords.get(tx, request.worker);
  const now = deps.now();
  if (!parent || !isRunnable(parent) || !worker || worker.incarnation !== request.incarnation)
    return undefined;
  const refused = modelProblem(String(parent.spec?.model), deps.config.ceilings);
  if (refused) {
    runRecords.set(tx, {...parent, status: 'paused', reason: refused, updated_at: iso(now)});
    recordEvent(tx, {kind: 'run', run, text: `Run ${run} is paused: ${refused}`}, now);
    return undefined;
  }
  const isHolder = isLeasedTo(current, holder);
  if (!isHolder && !acceptsCode(parent, worker.bundle, deps.config.bundle)) return undefined;
  if (budgetProblem(parent, worker.usd_per_hour, isHolder) || !isAlive(worker)) return undefined;
  const work = `${run}/${stream}`;
  // A late request: a later request of this worker has been granted a stream.
  const hasOther = (await workOf(deps.log, tx, worker)) ?? (await jobOf(deps, tx, worker));
  if (worker.work !== work && hasOther) return undefined;
  // The worker restarted, and asks for its own stream.
  const free = isHolder ? freeFromLiving(current, worker, now) : current;
  if (!isClaimable(free)) {
    returnStream(deps.log, tx, free, worker, now, parent);
    return undefined;
  }
  const granted = leaseTo(free, holder, now);
  streamRecords.set(tx, granted);
  // Of many workers that ask at once, a scarce budget carries only some. A write for each grant would make them wait for each other.
  const counted =
    !isHolder && isScarce(parent, worker.usd_per_hour, deps.config.ceilings.max_workers)
      ? withGrant(parent)
      : parent;
  const leased = withCode(counted, worker.bundle);
  if (leased !== parent) runRecords.set(tx, {...leased, updated_at: iso(now)});
  const report = {...NO_WORK, activity: 'loading', work, epoch: granted.epoch, claimed_at: iso(now)};
  workerRecords.set(tx, heardFrom(worker, report, now));
  const text = `${worker.name} works on ${run}/${stream} from sample ${granted.last_processed_sample_idx + 1}`;
  recordEvent(tx, {kind: 'stream', run, stream, worker: worker.name, epoch: granted.epoch, text}, now);
  return workOrder(deps, parent, granted);
}

function workOrder(deps: Deps, run: Run, stream: ReturnType<typeof leaseTo>) {
  const {object, generation, size_bytes, crc32c} = stream;
  return {
    action: 'work',
    lease: {run: run.run, stream: stream.stream, epoch: stream.epoch},
    work: {
      run: run.run,
      stream: stream.stream,
      worker_id: stream.worker_id,
      bucket: deps.objects.bucket,
      dataset: {object, generation, size_bytes, crc32c},
      output_prefix: outputPrefix(run.run, stream.stream),
      spec: run.spec,
      spec_hash: run.spec_hash,
    },
  };
}
