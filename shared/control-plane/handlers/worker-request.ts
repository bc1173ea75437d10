import type {WorkerRequest} from '../../contracts/schemas.ts';
import {whyModelRefused} from '../../domain/ceilings.ts';
import {streamFor} from '../../domain/fleet/pool.ts';
import {outputPrefix, parseWork, paths, streamId} from '../../domain/names.ts';
import {isOpen, isRunnable, type Run} from '../../domain/run/run.ts';
import {
  byPreference,
  type Candidate,
  candidateOf,
  chargeSuspect,
  freeFromLiving,
  grantLease,
  holds,
  isClaimable,
  isLeasedTo,
  type Loaded,
  RESTARTED,
  releaseLease,
  saysItHas,
} from '../../domain/stream/lease.ts';
import {placeAmong, retryIn, shuffled} from '../../domain/stream/spread.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import {iso} from '../../domain/time.ts';
import {askedForWork, heardFrom} from '../../domain/worker/heartbeat.ts';
import {nodeStanding} from '../../domain/worker/provider-states.ts';
import {isAlive, NO_WORK, type Worker} from '../../domain/worker/worker.ts';
import type {Stored, Transaction} from '../../ports.ts';
import type {Deps} from '../state/deps.ts';
import {PENDING, runRecords, streamRecords, unlessBroken, workerRecords} from '../state/documents.ts';
import {tell} from '../state/event-log.ts';
import {putBack, runOfFailed, setMachineFailed, suspectedBy, workOf} from '../state/lease-documents.ts';
import {readPool} from '../state/pools.ts';
import {advanceStream} from '../streams/advance-checkpoint.ts';
import {catchUp} from '../streams/register-stream.ts';
import {storePing} from '../workers/served-time.ts';

export type WorkerAnswer = {status: 200 | 409; body: object};

type LeaseRequest = Extract<WorkerRequest, {action: 'lease'}>;
type Heartbeat = Extract<WorkerRequest, {action: 'heartbeat'}>;
type Release = Extract<WorkerRequest, {action: 'release'}>;

/** What an agent on a TPU asks for and is told. Its words count only while its incarnation is the one the slot has now. */
export async function answerWorker(deps: Deps, request: WorkerRequest): Promise<WorkerAnswer> {
  switch (request.action) {
    case 'lease':
      return lease(deps, request);
    case 'heartbeat':
      return heartbeat(deps, request);
    case 'release':
      return release(deps, request);
    case 'ping':
      await storePing(deps);
      return ok({action: 'pong'});
    default:
      return request satisfies never;
  }
}

/** A request tries this many streams, then asks again within these seconds. With nothing pending, it asks when the pool says. */
const MOST_TRIES = 5;
const SOON_S = [2, 5] as const;

/** Costs as many transactions for each of many askers as for one: each tries few streams, at a place of its own. */
async function lease(deps: Deps, request: LeaseRequest): Promise<WorkerAnswer> {
  const known = await unlessBroken(deps, () => workerRecords.get(deps.store, request.worker));
  const {poll_s} = deps.config.pool;
  // Of one worker, no two requests look at the same place: what is there may be broken.
  const asker = `${request.worker}#${request.incarnation} at ${deps.now()}`;
  const wait = {action: 'wait', retry_s: retryIn(poll_s, poll_s * 1.25, asker)};
  const soon = {action: 'wait', retry_s: retryIn(...SOON_S, asker)};
  if (!known || isAhead(request, known)) return ok({...wait, reason: unknown(request)});
  const worker = isCurrent(known, request) ? known : undefined;
  if (!worker || worker.phase === 'draining') return ok({action: 'exit', reason: notWanted(request)});
  if (worker.recreate || worker.fault !== null)
    return ok({...wait, reason: `${worker.name} is to be made again`});
  if (!isAlive(worker)) {
    await noteQuestion(deps, request);
    return ok({...soon, reason: `${worker.name} was not known to be READY: ask again`});
  }
  let tries = 0;
  for await (const open of candidates(deps, worker, request.loaded ?? null, asker)) {
    if (tries === MOST_TRIES) return ok({...soon, reason: `others took ${MOST_TRIES} streams: ask again`});
    tries += 1;
    const {run, stream} = open;
    await unlessBroken(deps, () => catchUp(deps, open));
    const grant = () => deps.store.transaction(tx => tryGrant(deps, tx, request, run, stream));
    const work = await unlessBroken(deps, grant);
    if (work) return ok(work);
  }
  await noteQuestion(deps, request);
  return ok({...wait, reason: 'every stream is taken or done'});
}

/** The worker is heard, and has no work. */
function noteQuestion(deps: Deps, request: LeaseRequest): Promise<void> {
  return deps.store.transaction(async tx => {
    const current = await workerRecords.get(tx, request.worker);
    if (!isCurrent(current, request)) return;
    // It has work that it does not know of, or a request that was long on its way says nothing any more.
    if (await workOf(deps, tx, current)) return;
    workerRecords.set(tx, askedForWork(current, deps.now()));
  });
}

type Open = Candidate & {object: string; generation: string};

function open(run: Run, {stream, object, generation}: Stream, own = false): Open {
  return {...candidateOf(run, stream, own), object, generation};
}

/** How many streams of a run are read to choose one from: others are choosing as well. */
const PAGE = 20;

/** The streams this worker may have: the one that it has, and does not know of, and then those of the best run first. */
async function* candidates(deps: Deps, worker: Worker, loaded: Loaded, asker: string): AsyncGenerator<Open> {
  const broken = (error: Error) => deps.log('ERROR', error.message);
  const active = await deps.store.query('runs', {where: [{field: 'status', op: '==', value: 'active'}]});
  const runs = runRecords
    .parseAll(active, broken)
    .filter(run => isRunnable(run) && run.pool === worker.pool)
    .map(found => ({found, ...candidateOf(found, '')}))
    .sort(byPreference(loaded))
    .map(({found}) => found);
  const work = parseWork(worker.work);
  const parent = runs.find(({run}) => run === work?.run);
  if (parent && work) {
    const own = await unlessBroken(deps, () => streamRecords.get(deps.store, parent.run, work.stream));
    if (own && isLeasedTo(own, {worker: worker.name, incarnation: worker.incarnation}))
      yield open(parent, own, true);
  }
  for (const run of runs) {
    if (run.affinity === 'fixed') {
      const id = streamFor(await readPool(deps), run, worker.name);
      const its =
        id === undefined
          ? undefined
          : await unlessBroken(deps, () => streamRecords.get(deps.store, run.run, streamId(id)));
      if (its && isClaimable(its)) yield open(run, its);
      continue;
    }
    const pending = streamRecords.parseAll(await somePending(deps, run, asker), broken);
    yield* shuffled(pending, asker).map(stream => open(run, stream));
  }
}

/** Pending streams of the run from the asker's place on, and from the first on where too few come behind it. */
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

async function tryGrant(deps: Deps, tx: Transaction, request: LeaseRequest, run: string, stream: string) {
  const [parent, current, worker] = [
    await runRecords.get(tx, run),
    await streamRecords.get(tx, run, stream),
    await workerRecords.get(tx, request.worker),
  ];
  const now = deps.now();
  if (!parent || !isRunnable(parent) || !current || !worker || worker.incarnation !== request.incarnation)
    return undefined;
  const refused = whyModelRefused(String(parent.spec?.model), deps.config.ceilings);
  if (refused) {
    runRecords.set(tx, {...parent, status: 'paused', reason: refused, updated_at: iso(now)});
    tell(tx, {kind: 'run', run, text: `Run ${run} is paused: ${refused}`}, now);
    return undefined;
  }
  const holder = holderOf(request);
  if (!isAlive(worker) || !(isClaimable(current) || isLeasedTo(current, holder))) return undefined;
  const work = `${run}/${stream}`;
  // A request that was long on its way finds its sender at work on what a later one was given.
  if (worker.work !== work && (await workOf(deps, tx, worker))) return undefined;
  // It has begun anew, and asks for what it had.
  const free = isLeasedTo(current, holder) ? freeFromLiving(current, worker, now) : current;
  if (!isClaimable(free)) {
    putBack(tx, free, worker, now, parent);
    return undefined;
  }
  const granted = grantLease(free, holder, now);
  const {epoch} = granted;
  streamRecords.set(tx, granted);
  const said = {...NO_WORK, activity: 'loading', work, epoch, claimed_at: iso(now)};
  workerRecords.set(tx, heardFrom(worker, said, now));
  const text = `${worker.name} works on ${run}/${stream} from sample ${granted.last_processed_sample_idx + 1}`;
  tell(tx, {kind: 'stream', run, stream, worker: worker.name, epoch: granted.epoch, text}, now);
  return workOrder(deps, parent, granted);
}

function workOrder(deps: Deps, run: Run, stream: ReturnType<typeof grantLease>) {
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

/**
 * Reads and writes the worker alone: while its document says that it has the lease, it has it. A beat that names no lease, or an
 * older one, was sent before the last grant was heard of, and takes nothing back.
 */
async function heartbeat(deps: Deps, request: Heartbeat): Promise<WorkerAnswer> {
  const {heartbeat_s, lease_s} = deps.config;
  const claim = request.lease;
  return deps.store.transaction(async tx => {
    const now = deps.now();
    const worker = await unlessBroken(deps, () => workerRecords.get(tx, request.worker));
    // Its document was lost, or is an earlier one: it stores the shard in hand, and then waits for its node to go.
    if (!worker || isAhead(request, worker))
      return ok({...say(claim ? 'drain' : 'continue', unknown(request)), heartbeat_s});
    if (!isCurrent(worker, request)) return ok({...say('exit', notWanted(request)), heartbeat_s});
    let isHeld = claim !== null && saysItHas(worker, claim);
    let run: Run | undefined;
    if (claim && !isHeld) {
      const stream = await streamRecords.get(tx, claim.run, claim.stream);
      run = await runRecords.get(tx, claim.run);
      // Its document was edited, and its stream's says that it has the lease.
      if (stream && run && isOpen(run)) isHeld = holds(stream, {...holderOf(request), epoch: claim.epoch});
    }
    const drains = isHeld && run ? run.status === 'paused' : worker.drains;
    const held = isHeld && claim ? {...claim, claimed_at: iso(now)} : undefined;
    const {work, epoch, claimed_at} = held ? {...held, work: `${held.run}/${held.stream}`} : worker;
    // A host that Google has mended boots again too: that says nothing about its work.
    const wasUp = worker.phase !== 'booting' && nodeStanding(worker) !== 'mending';
    const beginsAnew = request.phase === 'setup' && wasUp;
    const suspected = beginsAnew && worker.fault === null ? await suspectedBy(deps, tx, worker) : undefined;
    const charged = suspected && chargeSuspect(suspected, worker, RESTARTED, now);
    const parent = charged && (await runOfFailed(deps, tx, charged));
    const said = {...NO_WORK, ...request.progress, activity: request.phase, work, epoch, drains};
    const spoken = heardFrom(worker, {...said, claimed_at: beginsAnew ? null : claimed_at}, now);
    workerRecords.set(tx, spoken);
    if (charged && charged !== suspected) putBack(tx, charged, undefined, now, parent);
    const lease_expires_at = isHeld ? iso(now + lease_s * 1000) : null;
    return ok({...verdict(request, spoken, isHeld, run), lease_expires_at, heartbeat_s});
  });
}

function verdict(request: Heartbeat, worker: Worker, isHeld: boolean, run: Run | undefined) {
  if (request.lease && !isHeld)
    return say('stop', `the lease of ${request.lease.run}/${request.lease.stream} is over: ${whyOver(run)}`);
  if (worker.phase === 'draining') return say(request.lease ? 'drain' : 'exit', notWanted(request));
  if (isHeld && worker.drains) return say('drain', `run ${request.lease?.run} is paused`);
  return say('continue', '');
}

function whyOver(run: Run | undefined): string {
  if (!run || isOpen(run)) return 'another worker has it, or it was given back';
  return `the run is ${run.status}`;
}

function say(action: 'continue' | 'drain' | 'stop' | 'exit', reason: string) {
  return {action, reason, lease_expires_at: null as string | null};
}

async function release(deps: Deps, request: Release): Promise<WorkerAnswer> {
  const {run, stream, epoch} = request.lease;
  await advanceStream(deps, run, stream);
  return deps.store.transaction(async tx => {
    const now = deps.now();
    const current = await streamRecords.get(tx, run, stream);
    const worker = await workerRecords.get(tx, request.worker);
    const claim = {epoch, ...holderOf(request)};
    const held = current && holds(current, claim);
    const next = current && releaseLease(current, claim, request.outcome, request.failure, now);
    if (!next)
      return {
        status: 409,
        body: say('stop', `the lease of ${run}/${stream} is not ${request.worker}'s any more`),
      };
    const {kind, reason} = request.failure ?? {};
    const isMachineFailed = kind === 'infrastructure' && held && next.status === 'failed';
    const parent = isMachineFailed ? await runOfFailed(deps, tx, next) : undefined;
    if (next !== current) streamRecords.set(tx, next);
    if (parent) setMachineFailed(tx, parent, next, now);
    if (isCurrent(worker, request) && worker.work === `${run}/${stream}`) {
      // Another machine may do what this one could not: it is replaced, and gets nothing before.
      const fault = kind === 'infrastructure' && reason ? reason.slice(0, 2000).toWellFormed() : worker.fault;
      const {total_shards} = next;
      const suspect = fault === null ? null : {work: worker.work, epoch, total_shards};
      workerRecords.set(tx, {...heardFrom(worker, nothingToDo(request), now), fault, suspect});
    }
    if (held)
      tell(
        tx,
        {kind: 'stream', run, stream, worker: request.worker, epoch, text: releaseText(request, next)},
        now,
      );
    return ok(say('continue', ''));
  });
}

function nothingToDo(request: Release) {
  const activity = request.outcome === 'preempted' ? 'preempted' : 'idle';
  return {...NO_WORK, activity};
}

function releaseText(request: Release, stream: Stream): string {
  const what = `${request.worker} gave ${stream.run}/${stream.stream} back: ${request.outcome}`;
  if (!request.failure) return what;
  const end = stream.status === 'failed' ? '; it is parked' : '';
  return `${what}, ${request.failure.reason}${end}`;
}

/** A slot that is `creating` is heard too: its node can boot before a tick has seen it READY. */
function isCurrent(worker: Worker | undefined, request: {incarnation: number}): worker is Worker {
  return (
    worker !== undefined &&
    worker.incarnation === request.incarnation &&
    (isAlive(worker) || worker.phase === 'creating')
  );
}

/** An incarnation that no document has asked for: the database was restored from a backup that is older than the worker. */
function isAhead(request: {incarnation: number}, {incarnation}: Worker): boolean {
  return request.incarnation > incarnation;
}

function holderOf(request: {worker: string; incarnation: number}) {
  return {worker: request.worker, incarnation: request.incarnation};
}

function unknown({worker}: {worker: string}): string {
  return `no document knows this life of ${worker}: its database was lost or restored, and its node will be deleted`;
}

function notWanted(request: {worker: string; incarnation: number}): string {
  return `${request.worker}, incarnation ${request.incarnation}, is not wanted any more`;
}

function ok(body: object): WorkerAnswer {
  return {status: 200, body};
}
