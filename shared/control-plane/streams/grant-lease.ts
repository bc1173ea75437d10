/** Requests for work: leases a pending stream of the first run in order of service to the worker that asks. */
import type {WorkerRequest} from '../../contracts/schemas.ts';
import {whyNotCarried} from '../../domain/billing/budget.ts';
import {whyModelRefused} from '../../domain/ceilings.ts';
import {streamFor} from '../../domain/fleet/pool.ts';
import {outputPrefix, parseWork, paths, streamId} from '../../domain/names.ts';
import {isRunnable, type Run} from '../../domain/run/run.ts';
import {
  byPreference,
  candidateOf,
  freeFromLiving,
  isClaimable,
  isLeasedTo,
  type Loaded,
  grantLease as leaseTo,
} from '../../domain/stream/lease.ts';
import {placeAmong, retryIn, shuffled} from '../../domain/stream/spread.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import {iso} from '../../domain/time.ts';
import {askedForWork, heardFrom} from '../../domain/worker/heartbeat.ts';
import {isAlive, NO_WORK, type Worker} from '../../domain/worker/worker.ts';
import type {Stored, Transaction} from '../../ports.ts';
import type {Deps} from '../state/deps.ts';
import {PENDING, runRecords, skipIfInvalid, streamRecords, workerRecords} from '../state/documents.ts';
import {recordEvent} from '../state/event-log.ts';
import {returnStream, workOf} from '../state/lease-documents.ts';
import {readPool} from '../state/pool.ts';
import {registerStream} from './register-stream.ts';
import {
  isAhead,
  isCurrent,
  notWanted,
  ok,
  requesterOf,
  unknown,
  type WorkerAnswer,
} from './worker-answers.ts';

type LeaseRequest = Extract<WorkerRequest, {action: 'lease'}>;

/** Limits of one request: streams to try, then seconds until the worker asks again. Without a pending stream it waits `poll_s`. */
const MOST_TRIES = 5;
const SOON_S = [2, 5] as const;

/** Tries few streams at a place of its own, so each of many workers costs as many transactions as a single worker. */
export async function grantLease(deps: Deps, request: LeaseRequest): Promise<WorkerAnswer> {
  const known = await skipIfInvalid(deps.log, () => workerRecords.get(deps.store, request.worker));
  const {poll_s} = deps.config.pool;
  // Two requests of one worker start at two places: the documents at one place may be invalid.
  const asker = `${request.worker}#${request.incarnation} at ${deps.now()}`;
  const wait = {action: 'wait', retry_s: retryIn(poll_s, poll_s * 1.25, asker)};
  const soon = {action: 'wait', retry_s: retryIn(...SOON_S, asker)};
  if (!known || isAhead(request, known)) return ok({...wait, reason: unknown(request)});
  const worker = isCurrent(known, request) ? known : undefined;
  if (!worker || worker.phase === 'draining') return ok({action: 'exit', reason: notWanted(request)});
  if (worker.recreate || worker.fault !== null)
    return ok({...wait, reason: `${worker.name} is being replaced`});
  if (!isAlive(worker)) {
    await recordRequest(deps, request);
    return ok({...soon, reason: `${worker.name} counts as READY from now on: ask again`});
  }
  let tries = 0;
  for await (const open of candidates(deps, worker, request.loaded ?? null, asker)) {
    if (tries === MOST_TRIES) return ok({...soon, reason: `others took ${MOST_TRIES} streams: ask again`});
    tries += 1;
    const {parent, stream} = open;
    await skipIfInvalid(deps.log, () => registerNewest(deps, parent, stream));
    const grant = () => deps.store.transaction(tx => tryGrant(deps, tx, request, stream));
    const work = await skipIfInvalid(deps.log, grant);
    if (work) return ok(work);
  }
  await recordRequest(deps, request);
  if (tries > 0) return ok({...soon, reason: `others took ${tries} streams: ask again`});
  return ok({...wait, reason: 'every stream is leased or finished'});
}

/** Records that the worker lives and has no work. */
function recordRequest(deps: Deps, request: LeaseRequest): Promise<void> {
  return deps.store.transaction(async tx => {
    const current = await workerRecords.get(tx, request.worker);
    if (!isCurrent(current, request)) return;
    // The worker has work: it has not heard of its lease yet, or this request is late.
    if (await workOf(deps.log, tx, current)) return;
    workerRecords.set(tx, askedForWork(current, deps.now()));
  });
}

/** A stream that the worker may be granted, and its run. */
type Open = {parent: Run; stream: Stream};

/** Registers the newest generation of the stream: its event may be late, and workers cannot read an overwritten generation. */
async function registerNewest(deps: Deps, parent: Run, {stream, object, generation}: Stream): Promise<void> {
  const present = await deps.objects.head(object);
  if (present && present.generation !== generation) await registerStream(deps, parent, object, stream);
}

/** Pending streams to read for one choice: each costs a read, and the worker needs a single stream. */
const PAGE = 2;

/** Age up to which requests share the list of active runs. A grant reads its run again in its transaction, whatever the age. */
const SHARED_MS = 2000;

/** Yields streams of the shared list of active runs. Then yields those of runs that became active since, so no worker waits for them. */
async function* candidates(deps: Deps, worker: Worker, loaded: Loaded, asker: string): AsyncGenerator<Open> {
  const began_ms = deps.now();
  const shared = await deps.activeRuns.readSince(began_ms - SHARED_MS, deps);
  yield* candidatesOf(deps, worker, servedFirst(shared, worker, loaded), asker);
  const known = new Set(shared.map(({run}) => run));
  const present = await deps.activeRuns.readSince(began_ms, deps);
  const others = present.filter(({run}) => !known.has(run));
  yield* candidatesOf(deps, worker, servedFirst(others, worker, loaded), asker);
}

/** The runs that may serve the worker, in their order of service. */
function servedFirst(active: readonly Run[], worker: Worker, loaded: Loaded): Run[] {
  return (
    active
      .filter(run => isRunnable(run) && run.pool === worker.pool && !whyNotCarried(run, worker.usd_per_hour))
      .map(found => ({found, ...candidateOf(found, '')}))
      .sort(byPreference(loaded))
      .map(({found}) => found)
      // Runs without a pending stream at the last tick come last: each would cost a search.
      .sort((one, other) => Number(isServedOut(one)) - Number(isServedOut(other)))
  );
}

/** Yields the stream that is leased to the worker already, then pending streams of each run. */
async function* candidatesOf(deps: Deps, worker: Worker, runs: Run[], asker: string): AsyncGenerator<Open> {
  const invalid = (error: Error) => deps.log('ERROR', error.message);
  const work = parseWork(worker.work);
  const parent = runs.find(({run}) => run === work?.run);
  if (parent && work) {
    const own = await skipIfInvalid(deps.log, () => streamRecords.get(deps.store, parent.run, work.stream));
    if (own && isLeasedTo(own, {worker: worker.name, incarnation: worker.incarnation}))
      yield {parent, stream: own};
  }
  for (const run of runs) {
    if (run.affinity === 'fixed') {
      const id = streamFor(await readPool(deps), run, worker.name);
      const its =
        id === undefined
          ? undefined
          : await skipIfInvalid(deps.log, () => streamRecords.get(deps.store, run.run, streamId(id)));
      if (its && isClaimable(its)) yield {parent: run, stream: its};
      continue;
    }
    const tried = new Set<string>();
    for (const place of [asker, `${asker}, again`]) {
      const pending = streamRecords.parseAll(await somePending(deps, run, place), invalid);
      const others = pending.filter(({stream}) => !tried.has(stream));
      for (const stream of shuffled(others, place)) {
        tried.add(stream.stream);
        yield {parent: run, stream};
      }
      if (pending.length < PAGE) break;
    }
  }
}

function isServedOut({affinity, streams_pending, streams_in_progress}: Run): boolean {
  return affinity === 'any' && streams_pending === 0 && streams_in_progress > 0;
}

/** Reads pending streams of the run from the place of the asker on. Too few streams there: reads from the first stream on too. */
async function somePending(deps: Deps, run: Run, asker: string): Promise<Stored[]> {
  const streams = paths.streams(run.run);
  const {streams_pending, streams_in_progress, streams_completed, streams_failed} = run;
  const all = streams_pending + streams_in_progress + streams_completed + streams_failed;
  const after = placeAmong(all, PAGE, asker);
  const query = {where: [PENDING], limit: PAGE};
  if (after === undefined) return deps.store.query(streams, query);
  const behind = await deps.store.query(streams, {...query, after});
  if (behind.length === PAGE) return behind;
  const first = await deps.store.query(streams, {...query, limit: PAGE - behind.length});
  const known = new Set(behind.map(({id}) => id));
  return [...behind, ...first.filter(({id}) => !known.has(id))];
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
  const refused = whyModelRefused(String(parent.spec?.model), deps.config.ceilings);
  if (refused) {
    runRecords.set(tx, {...parent, status: 'paused', reason: refused, updated_at: iso(now)});
    recordEvent(tx, {kind: 'run', run, text: `Run ${run} is paused: ${refused}`}, now);
    return undefined;
  }
  if (whyNotCarried(parent, worker.usd_per_hour)) return undefined;
  if (!isAlive(worker)) return undefined;
  const work = `${run}/${stream}`;
  // A late request: a later request of this worker has been granted a stream.
  if (worker.work !== work && (await workOf(deps.log, tx, worker))) return undefined;
  // The worker restarted, and asks for its own stream.
  const free = isLeasedTo(current, holder) ? freeFromLiving(current, worker, now) : current;
  if (!isClaimable(free)) {
    returnStream(tx, free, worker, now, parent);
    return undefined;
  }
  const granted = leaseTo(free, holder, now);
  const {epoch} = granted;
  streamRecords.set(tx, granted);
  const report = {...NO_WORK, activity: 'loading', work, epoch, claimed_at: iso(now)};
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
    heartbeat_s: deps.config.heartbeat_s,
  };
}
