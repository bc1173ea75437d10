import {
  adoptLease,
  byPreference,
  type Candidate,
  grantLease,
  holds,
  isClaimable,
  isLeasedTo,
  type Loaded,
  releaseLease,
  renewLease,
} from '../core/lease.ts';
import {outputPrefix, paths} from '../core/names.ts';
import {isFor} from '../core/pool.ts';
import {isOpen, isRunnable, isSettled, type Run} from '../core/run.ts';
import type {Stream} from '../core/stream.ts';
import {askedForWork, heardFrom, isAlive, NO_WORK, type Worker} from '../core/worker.ts';
import type {Transaction} from '../ports.ts';
import type {WorkerRequest} from '../schemas.ts';
import type {Deps} from './deps.ts';
import {catchUp} from './intake.ts';
import {advanceStream} from './progress.ts';
import {runRecords, streamRecords, UNFINISHED, unlessBroken, workerRecords} from './records.ts';
import {tell} from './timeline.ts';
import {readPool, streamOf} from './workers.ts';

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
  const known = await workerRecords.get(deps.store, request.worker);
  if (!known) return ok({action: 'wait', retry_s: deps.config.heartbeat_s, reason: unknown(request)});
  const worker = isCurrent(known, request) ? known : undefined;
  if (!worker || worker.phase === 'draining') return ok({action: 'exit', reason: notWanted(request)});
  const wait = {action: 'wait', retry_s: deps.config.heartbeat_s};
  if (worker.recreate || worker.fault !== null)
    return ok({...wait, reason: `${worker.name} is to be made again`});
  for (const open of await candidates(deps, worker, request.loaded ?? null)) {
    const {run, stream} = open;
    await unlessBroken(deps, () => catchUp(deps, open));
    const grant = () => deps.store.transaction(tx => tryGrant(deps, tx, request, run, stream));
    const work = await unlessBroken(deps, grant);
    if (work) return ok(work);
  }
  await deps.store.transaction(async tx => {
    const current = await workerRecords.get(tx, request.worker);
    if (isCurrent(current, request)) workerRecords.set(tx, askedForWork(current, deps.now()));
  });
  return ok({...wait, reason: 'every stream is taken or done'});
}

type Open = Candidate & {object: string; generation: string};

/** The streams this worker may have, best first. */
async function candidates(deps: Deps, worker: Worker, loaded: Loaded): Promise<Open[]> {
  const now = deps.now();
  const holder = {worker: worker.name, incarnation: worker.incarnation};
  const broken = (error: Error) => deps.log('ERROR', error.message);
  const active = await deps.store.query('runs', {where: [{field: 'status', op: '==', value: 'active'}]});
  const found: Open[] = [];
  const runs = runRecords.parseAll(active, broken);
  const isAnyFixed = runs.some(({affinity}) => affinity === 'fixed');
  const pool = isAnyFixed ? await readPool(deps) : deps.config.pool;
  for (const run of runs) {
    if (!isRunnable(run) || run.pool !== worker.pool) continue;
    const open = await deps.store.query(paths.streams(run.run), {where: [UNFINISHED]});
    for (const stream of streamRecords.parseAll(open, broken)) {
      // An agent that asks for work has none: a lease in its name is left from before its host restarted.
      const own = isLeasedTo(stream, holder);
      const isFree = isClaimable(stream, now) && isSettled(run, deps.config.lease_s, now);
      if (!own && !(isFree && isFor(pool, run, stream.worker_id, worker.name))) continue;
      const {spec_hash, priority, created_at} = run;
      found.push({
        run: run.run,
        stream: stream.stream,
        spec_hash: spec_hash ?? '',
        model: String(run.spec?.model ?? ''),
        priority,
        run_created_at: created_at,
        own,
        object: stream.object,
        generation: stream.generation,
      });
    }
  }
  return found.sort(byPreference(loaded));
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
  if (!isAlive(worker) || !(isClaimable(current, now) || isLeasedTo(current, holder))) return undefined;
  // A request that was long on its way finds its sender at work on what a later one was given.
  const inHand = await streamOf(tx, worker);
  if (inHand && !(inHand.run === run && inHand.stream === stream)) return undefined;
  const granted = grantLease(current, holder, deps.config.lease_s, now);
  streamRecords.set(tx, granted);
  workerRecords.set(tx, heardFrom(worker, {...NO_WORK, activity: 'loading', work: `${run}/${stream}`}, now));
  const text = `${worker.name} works on ${run}/${stream} from sample ${granted.last_processed_sample_idx + 1}`;
  tell(tx, {kind: 'stream', run, stream, worker: worker.name, epoch: granted.epoch, text}, now);
  return workOrder(deps, parent, granted);
}

function workOrder(deps: Deps, run: Run, stream: ReturnType<typeof grantLease>) {
  const {object, generation, size_bytes, crc32c} = stream;
  return {
    action: 'work',
    lease: {run: run.run, stream: stream.stream, epoch: stream.epoch, expires_at: stream.lease.expires_at},
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

async function heartbeat(deps: Deps, request: Heartbeat): Promise<WorkerAnswer> {
  return deps.store.transaction(async tx => {
    const now = deps.now();
    const claim = request.lease;
    const worker = await workerRecords.get(tx, request.worker);
    const stream = claim ? await streamRecords.get(tx, claim.run, claim.stream) : undefined;
    const run = claim ? await runRecords.get(tx, claim.run) : undefined;
    const {heartbeat_s, lease_s} = deps.config;
    // No document is ever deleted: one that is not there was lost, and the next look makes it again.
    if (!worker) return ok({...say('continue', unknown(request)), heartbeat_s});
    if (!isCurrent(worker, request)) return ok({...say('exit', notWanted(request)), heartbeat_s});
    if (claim && (!stream || !run)) return ok({...say('continue', unknown(request)), heartbeat_s});
    const held = claim && {...claim, ...holderOf(request)};
    const isFree = worker.work === null || worker.work === `${claim?.run}/${claim?.stream}`;
    const renewed =
      held && stream && run && isOpen(run)
        ? (renewLease(stream, held, lease_s, now) ??
          (isFree ? adoptLease(stream, held, lease_s, now) : undefined))
        : undefined;
    if (renewed) streamRecords.set(tx, renewed);
    if (renewed && held && stream?.epoch !== renewed.epoch) {
      const {run, stream, epoch} = renewed;
      const text = `${worker.name} goes on with ${run}/${stream}, as it says: its lease was lost with the documents`;
      tell(tx, {kind: 'stream', run, stream, worker: worker.name, epoch, text}, now);
    }
    const work = renewed ? `${renewed.run}/${renewed.stream}` : null;
    const spoken = heardFrom(worker, {...NO_WORK, ...request.progress, activity: request.phase, work}, now);
    workerRecords.set(tx, spoken);
    return ok({
      ...verdict(request, spoken, renewed, run),
      lease_expires_at: renewed?.lease?.expires_at ?? null,
      heartbeat_s,
    });
  });
}

function verdict(request: Heartbeat, worker: Worker, renewed: Stream | undefined, run: Run | undefined) {
  if (request.lease && !renewed)
    return say('stop', `the lease of ${request.lease.run}/${request.lease.stream} is over: ${whyOver(run)}`);
  if (worker.phase === 'draining') return say(request.lease ? 'drain' : 'exit', notWanted(request));
  if (run?.status === 'paused') return say('drain', `run ${run.run} is paused`);
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
  return `the documents of ${worker} or its work are lost; the next look makes them again`;
}

function notWanted(request: {worker: string; incarnation: number}): string {
  return `${request.worker}, incarnation ${request.incarnation}, is not wanted any more`;
}

function ok(body: object): WorkerAnswer {
  return {status: 200, body};
}
