import {streamFor} from '../../domain/fleet/slots.ts';
import {parseWork, paths, streamId} from '../../domain/names.ts';
import {isRunnable, type Run} from '../../domain/records/run.ts';
import type {Stream} from '../../domain/records/stream.ts';
import type {Worker} from '../../domain/records/worker.ts';
import {decideStreamGrant, isGrantable, type Waiting} from '../../domain/requests/grant-stream.ts';
import {type Holder, isClaimable, isLeasedTo, type LeaseKeys} from '../../domain/stream/lease.ts';
import {inServiceOrder, isServedOut, type Loaded} from '../../domain/stream/service-order.ts';
import {placeAmong, shuffled} from '../../domain/stream/spread.ts';
import type {Transaction} from '../../ports/ports.ts';
import {readPool} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {
  leftAlone,
  PENDING,
  runRecords,
  skipIfInvalid,
  streamRecords,
  workerRecords,
} from '../documents/documents.ts';
import {holdsWork} from '../documents/lease-documents.ts';
import {advanceAndKeep} from '../streams/advance-checkpoint.ts';
import {registerStream} from '../streams/register-stream.ts';
import {leaseKey} from '../workers/tickets.ts';
import type {AgentRequest, GrantResult} from './answers.ts';
import {transact} from './write.ts';

const MOST_TRIES = 5;
const MOST_RUNS = 10;

/** Leases a stream of the first run in order of service. Tries only a few streams: many workers ask at once, and each try is a transaction. */
export async function grantStream(
  deps: Deps,
  worker: Worker,
  {loaded = null}: AgentRequest<'lease'>,
  asker: string,
): Promise<GrantResult> {
  const holder = {worker: worker.name, incarnation: worker.incarnation};
  const {bundle, ceilings, region, identity} = deps.config;
  const keyOf: LeaseKeys = (stream, epoch) => leaseKey(identity, stream, epoch);
  const settings = {bundle, ceilings, region, bucket: deps.objects.bucket, keyOf};
  const search = {worker, holder, loaded, asker, runs_left: MOST_RUNS, isCut: false};
  let tries = 0;
  for await (const {run, stream} of candidates(deps, search)) {
    if (tries === MOST_TRIES) return {soon: `others took ${MOST_TRIES} streams: ask again`, isRaced: true};
    tries += 1;
    const waiting = await skipIfInvalid(deps.log, async () => {
      await registerNewest(deps, run, stream);
      return stream.epoch > 0 ? waitingOf(deps, stream) : undefined;
    });
    const grant = () =>
      transact(deps, async (tx, now) => {
        const state = await readGrant(deps, tx, holder, stream);
        return state ? decideStreamGrant({...state, waiting}, holder, settings, now) : {};
      });
    const order = (await skipIfInvalid(deps.log, grant))?.order;
    if (order) return {order};
  }
  const isRaced = false;
  if (tries > 0) return {soon: `others took ${tries} streams: ask again`, isRaced};
  return search.isCut ? {soon: `${MOST_RUNS} runs had no stream: ask again`, isRaced} : undefined;
}

/** Counts the shards of the last lease, which the grant ends. Shards after a gap stay, and count under the next lease. */
async function waitingOf(deps: Deps, {run, stream}: Stream): Promise<Waiting | undefined> {
  const {current, waiting} = await advanceAndKeep(deps, run, stream);
  return current && {epoch: current.epoch, shards: waiting};
}

/** True if a failed search of one worker stands for every worker of the pool; a run of `affinity: fixed` has different streams for each. */
export async function failsForWholePool(deps: Deps, pool: string, since_ms: number): Promise<boolean> {
  const runs = await deps.activeRuns.readSince(pool, since_ms, deps);
  return runs.every(run => run.affinity === 'any');
}

type Candidate = {run: Run; stream: Stream};

/** Registers the newest generation of the stream: its event may be late, and workers cannot read an overwritten generation. */
async function registerNewest(deps: Deps, run: Run, {stream, object, generation}: Stream): Promise<void> {
  const present = await deps.objects.head(object);
  if (present && present.generation !== generation) await registerStream(deps, run, object, stream);
}

/** Reads the documents of a grant. Undefined if another worker took the stream; then only one read was wasted. */
async function readGrant(deps: Deps, tx: Transaction, holder: Holder, {run: runName, stream: id}: Stream) {
  const stream = await streamRecords.get(tx, runName, id);
  if (!stream || !isGrantable(stream, holder)) return undefined;
  const run = await runRecords.get(tx, runName);
  const worker = await workerRecords.get(tx, holder.worker);
  const isOther = worker !== undefined && worker.work !== `${runName}/${id}`;
  return {stream, run, worker, hasOtherWork: isOther && (await holdsWork(deps, tx, worker))};
}

/** The search of one request. `isCut`: a run that may have pending streams was skipped, because `runs_left` was 0. */
type Search = {
  worker: Worker;
  holder: Holder;
  loaded: Loaded;
  asker: string;
  runs_left: number;
  isCut: boolean;
};

/** Pending streams to read for one choice: each costs a read, and the worker needs only one. */
const PAGE = 2;

/** Pending streams to read if a page is too small: for a short run, or where others were faster. */
const WIDE_PAGE = 10;

/** Greatest age at which requests share the list of active runs. A grant reads its run again in its transaction in any case. */
const SHARED_MS = 2000;

/** Yields streams of the shared list of active runs, then of runs that became active since, so that no worker waits for them. */
async function* candidates(deps: Deps, search: Search): AsyncGenerator<Candidate> {
  const began_ms = deps.now();
  const {pool} = search.worker;
  const shared = await deps.activeRuns.readSince(pool, began_ms - SHARED_MS, deps);
  yield* candidatesOf(deps, search, shared);
  const sharedNames = new Set(shared.map(({run}) => run));
  const present = await deps.activeRuns.readSince(pool, began_ms, deps);
  const others = present.filter(({run}) => !sharedNames.has(run));
  yield* candidatesOf(deps, search, others);
}

async function* candidatesOf(deps: Deps, search: Search, active: readonly Run[]): AsyncGenerator<Candidate> {
  const {worker, holder, loaded, asker} = search;
  const read = (run: Run, id: string) => streamRecords.read(deps.log, deps.store, run.run, id);
  const runs = active.filter(isRunnable);
  const work = parseWork(worker.work);
  const ownRun = runs.find(({run}) => run === work?.run);
  const own = work && ownRun && (await read(ownRun, work.stream));
  if (own && isLeasedTo(own, holder)) yield {run: ownRun, stream: own};
  for (const run of inServiceOrder(runs, worker, loaded, asker)) {
    if (run.affinity === 'fixed') {
      const pool = await readPool(deps, run.pool);
      const id = pool && streamFor(pool, run, worker.name);
      const fixed = id === undefined ? undefined : await read(run, streamId(id));
      if (fixed && isClaimable(fixed)) yield {run, stream: fixed};
    } else if (search.runs_left > 0) {
      search.runs_left -= 1;
      yield* pendingOf(deps, run, asker);
    } else search.isCut ||= !isServedOut(run);
  }
}

/** Yields pending streams of the run, starting from the asker's own place. If there are too few, continues from the first stream. */
async function* pendingOf(deps: Deps, run: Run, asker: string): AsyncGenerator<Candidate> {
  const read = (limit: number, after?: string) =>
    deps.store.query(paths.streams(run.run), {where: [PENDING], limit, ...(after && {after})});
  const isShort = run.streams_pending <= WIDE_PAGE;
  const tried = new Set<string>();
  for (const page of [PAGE, WIDE_PAGE]) {
    const place = `${asker}, ${page}`;
    const indexes = isShort && page === PAGE ? undefined : await deps.activeRuns.indexesOf(run, deps.store);
    const behind = indexes && (await read(page, placeAmong(indexes, place)));
    const isEnough = behind?.length === page;
    const stored = isEnough ? behind : await read(WIDE_PAGE);
    const pending = streamRecords.parseAll(stored, leftAlone(deps.log));
    const untried = pending.filter(({stream}) => !tried.has(stream));
    for (const stream of shuffled(untried, place, ({stream}) => stream)) {
      tried.add(stream.stream);
      yield {run, stream};
    }
    if (!isEnough && stored.length < WIDE_PAGE) return;
  }
}
