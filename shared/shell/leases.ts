import {
  byPreference,
  type Candidate,
  candidateOf,
  freeFromLiving,
  grantLease,
  holds,
  isClaimable,
  isLeasedTo,
  type Loaded,
  releaseLease,
  saysItHas,
} from '../core/lease.ts';
import {outputPrefix, parseWork, paths, streamId} from '../core/names.ts';
import {streamFor} from '../core/pool.ts';
import {nodeStanding} from '../core/provider.ts';
import {isOpen, isRunnable, type Run} from '../core/run.ts';
import type {Stream} from '../core/stream.ts';
import {iso} from '../core/time.ts';
import {askedForWork, heardFrom, isAlive, NO_WORK, type Worker} from '../core/worker.ts';
import type {Transaction} from '../ports.ts';
import type {WorkerRequest} from '../schemas.ts';
import type {Deps} from './deps.ts';
import {putBack, workOf} from './holders.ts';
import {catchUp} from './intake.ts';
import {readPool} from './pools.ts';
import {advanceStream} from './progress.ts';
import {PENDING, runRecords, streamRecords, unlessBroken, workerRecords} from './records.ts';
import {tell} from './timeline.ts';

export type WorkerAnswer = {status: 200 | 409; body: object};

type LeaseRequest = Extract<WorkerRequest, {action: 'lease'}>;
type Heartbeat = Extract<WorkerRequest, {action: 'heartbeat'}>;
type Release = Extract<WorkerRequest, {action: 'release'}>;

/** What an agent on a TPU asks for and is told. Its words count only while its incarnation is the one the slot has now. */
export function answerWorker(deps: Deps, request: WorkerRequest): Promise<WorkerAnswer> {
  switch (request.action) {
    case 'lease':
      return lease(deps, request);
    case 'heartbeat':
      return heartbeat(deps, request);
    case 'release':
      return release(deps, request);
    default:
      return request satisfies never;
  }
}

async function lease(deps: Deps, request: LeaseRequest): Promise<WorkerAnswer> {
  const known = await unlessBroken(deps, () => workerRecords.get(deps.store, request.worker));
  if (!known) return ok({action: 'wait', retry_s: deps.config.heartbeat_s, reason: unknown(request)});
  const worker = isCurrent(known, request) ? known : undefined;
  if (!worker || worker.phase === 'draining') return ok({action: 'exit', reason: notWanted(request)});
  const wait = {action: 'wait', retry_s: deps.config.heartbeat_s};
  if (worker.recreate || worker.fault !== null)
    return ok({...wait, reason: `${worker.name} is to be made again`});
  for await (const open of candidates(deps, worker, request.loaded ?? null)) {
    const {run, stream} = open;
    await unlessBroken(deps, () => catchUp(deps, open));
    const grant = () => deps.store.transaction(tx => tryGrant(deps, tx, request, run, stream));
    const work = await unlessBroken(deps, grant);
    if (work) return ok(work);
  }
  await deps.store.transaction(async tx => {
    const current = await workerRecords.get(tx, request.worker);
    if (!isCurrent(current, request)) return;
    // It has work that it does not know of, or a request that was long on its way says nothing any more.
    if (await workOf(deps, tx, current)) return;
    workerRecords.set(tx, askedForWork(current, deps.now()));
  });
  return ok({...wait, reason: 'every stream is taken or done'});
}

type Open = Candidate & {object: string; generation: string};

function open(run: Run, {stream, object, generation}: Stream, own = false): Open {
  return {...candidateOf(run, stream, own), object, generation};
}

/** How many streams are read at once to choose one from, and how often for one request: others are choosing as well. */
const PAGE = 30;
const MOST_PAGES = 5;

/** The streams this worker may have, best first: the one that it has, and does not know of, before any other. */
async function* candidates(deps: Deps, worker: Worker, loaded: Loaded): AsyncGenerator<Open> {
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
    let after: string | undefined;
    for (let page = 0; page < MOST_PAGES; page++) {
      const where = {where: [PENDING], limit: PAGE, ...(after === undefined ? {} : {after})};
      const pending = await deps.store.query(paths.streams(run.run), where);
      const found = streamRecords.parseAll(pending, broken).map(stream => open(run, stream));
      yield* found.sort(byPreference(loaded));
      if (pending.length < PAGE) break;
      after = pending.at(-1)?.id;
    }
  }
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
  const holder = holderOf(request);
  if (!isAlive(worker) || !(isClaimable(current) || isLeasedTo(current, holder))) return undefined;
  const work = `${run}/${stream}`;
  // A request that was long on its way finds its sender at work on what a later one was given.
  if (worker.work !== work && (await workOf(deps, tx, worker))) return undefined;
  // It has begun anew, and asks for what it had.
  const free = isLeasedTo(current, holder) ? freeFromLiving(current, worker, 'it asks', now) : current;
  if (!isClaimable(free)) {
    putBack(tx, free, worker, now);
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
    // Its document was lost: it stores the shard in hand, and then waits for its node to go.
    if (!worker) return ok({...say(claim ? 'drain' : 'continue', unknown(request)), heartbeat_s});
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
    const said = {...NO_WORK, ...request.progress, activity: request.phase, work, epoch, drains};
    const spoken = heardFrom(worker, {...said, claimed_at: beginsAnew ? null : claimed_at}, now);
    workerRecords.set(tx, spoken);
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
    if (next !== current) streamRecords.set(tx, next);
    if (isCurrent(worker, request) && worker.work === `${run}/${stream}`) {
      // What this machine could not do, another may: it is replaced, and gets nothing before.
      const {kind, reason} = request.failure ?? {};
      const fault = kind === 'infrastructure' && reason ? reason.slice(0, 2000).toWellFormed() : worker.fault;
      workerRecords.set(tx, {...heardFrom(worker, nothingToDo(request), now), fault});
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

function holderOf(request: {worker: string; incarnation: number}) {
  return {worker: request.worker, incarnation: request.incarnation};
}

function unknown({worker}: {worker: string}): string {
  return `no document knows ${worker}: its database was lost, and its node will be deleted`;
}

function notWanted(request: {worker: string; incarnation: number}): string {
  return `${request.worker}, incarnation ${request.incarnation}, is not wanted any more`;
}

function ok(body: object): WorkerAnswer {
  return {status: 200, body};
}
