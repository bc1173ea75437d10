import {isExpired, revokeLease} from '../core/lease.ts';
import {logObject, parseWorkerName, paths} from '../core/names.ts';
import {wantedSlots} from '../core/pool.ts';
import {isRunnable, type Run, summarizeRun} from '../core/run.ts';
import {isUnfinished, type Stream} from '../core/stream.ts';
import {isOlderThan, iso} from '../core/time.ts';
import {
  decideWorker,
  newWorker,
  type Observation,
  type Phase,
  type Worker,
  type WorkerAction,
  type WorkerDecision,
} from '../core/worker.ts';
import type {Filter, Tpu, Transaction} from '../ports.ts';
import type {Deps} from './deps.ts';
import {INCARNATION_LABEL, MANAGED, publishActions} from './fleet.ts';
import {advanceStream} from './progress.ts';
import {runRecords, streamRecords, workerRecords} from './records.ts';
import {tell} from './timeline.ts';

/**
 * The tick: looks at everything and reaches the same decisions from nothing but state, so that any event may be lost.
 * With nothing left to do it switches the beat off, and on again if something came meanwhile.
 */
export async function lookAtEverything(deps: Deps): Promise<void> {
  const {tpus, unreachable} = await deps.tpus.list();
  const nodes = new Map(tpus.map(tpu => [tpu.name, tpu]));
  const observe = (name: string, zone: string): Observation => {
    const tpu = nodes.get(name);
    if (tpu) return {kind: 'node', state: tpu.state, health: tpu.health, incarnation: incarnationOf(tpu)};
    return unreachable.includes(zone) ? {kind: 'unknown'} : {kind: 'absent'};
  };
  const runs = await openRuns(deps);
  const unfinished = new Map<string, number>();
  for (const run of runs) {
    const left = await lookAtRun(deps, run);
    if (isRunnable(left.run)) unfinished.set(run.pool, (unfinished.get(run.pool) ?? 0) + left.unfinished);
  }
  const busy = await lookAtWorkers(deps, unfinished, observe, tpus);
  if (busy || [...unfinished.values()].some(count => count > 0)) return;
  await deps.ticker.off();
  if (await isAnythingLeft(deps)) await deps.ticker.on();
}

/** After work came in: asks for the TPUs it wants without waiting for the tick, concluding nothing about nodes it has not seen. */
export async function lookForWork(deps: Deps): Promise<void> {
  await lookAtWorkers(deps, await unfinishedStreams(deps), () => ({kind: 'unknown'}), []);
}

/** How many unfinished streams the runnable runs of each pool have. */
async function unfinishedStreams(deps: Deps): Promise<Map<string, number>> {
  const unfinished = new Map<string, number>();
  for (const run of await openRuns(deps)) {
    if (!isRunnable(run)) continue;
    const where: Filter[] = [{field: 'status', op: 'in', value: ['pending', 'in_progress']}];
    const count = await deps.store.count(paths.streams(run.run), where);
    unfinished.set(run.pool, (unfinished.get(run.pool) ?? 0) + count);
  }
  return unfinished;
}

async function openRuns(deps: Deps): Promise<Run[]> {
  const open = await deps.store.query('runs', {
    where: [{field: 'status', op: 'in', value: ['active', 'paused']}],
  });
  return runRecords.parseAll(open, error => deps.log('ERROR', error.message));
}

/** Expires leases, audits checkpoints against the bucket, and sums the run up. */
async function lookAtRun(deps: Deps, run: Run): Promise<{run: Run; unfinished: number}> {
  const stored = await deps.store.query(paths.streams(run.run));
  const streams = streamRecords.parseAll(stored, error => deps.log('ERROR', error.message, {run: run.run}));
  const looked: Stream[] = [];
  for (const stream of streams) looked.push(isUnfinished(stream) ? await lookAtStream(deps, stream) : stream);
  const summed = await deps.store.transaction(async tx => {
    const current = await runRecords.get(tx, run.run);
    if (!current) return run;
    const now = deps.now();
    const next = summarizeRun(current, looked, now);
    if (next === current) return current;
    runRecords.set(tx, next);
    if (next.status !== current.status)
      tell(
        tx,
        {
          kind: 'run',
          run: run.run,
          text: `Run ${run.run} is ${next.status}${next.reason ? `: ${next.reason}` : ''}`,
        },
        now,
      );
    return next;
  });
  return {run: summed, unfinished: looked.filter(isUnfinished).length};
}

async function lookAtStream(deps: Deps, stream: Stream): Promise<Stream> {
  const due = isOlderThan(stream.updated_at, deps.config.audit_s, deps.now());
  const audited = due ? ((await advanceStream(deps, stream.run, stream.stream)) ?? stream) : stream;
  if (!isExpired(audited, deps.now())) return audited;
  return deps.store.transaction(async tx => {
    const current = await streamRecords.get(tx, stream.run, stream.stream);
    const now = deps.now();
    if (!current || !isExpired(current, now)) return current ?? stream;
    const free = revokeLease(current, now);
    streamRecords.set(tx, free);
    const text = `The lease of ${stream.run}/${stream.stream} ran out: ${current.lease?.worker} did not renew it`;
    tell(tx, {kind: 'stream', run: stream.run, stream: stream.stream, text}, now);
    return free;
  });
}

/** Decides about every slot that has a worker or should have one; true while any is not gone. */
async function lookAtWorkers(
  deps: Deps,
  unfinished: ReadonlyMap<string, number>,
  observe: (name: string, zone: string) => Observation,
  tpus: readonly Tpu[],
): Promise<boolean> {
  const now = deps.now();
  const {pool} = deps.config;
  const stored = await deps.store.query('workers');
  const workers = new Map(
    workerRecords
      .parseAll(stored, error => deps.log('ERROR', error.message))
      .map(worker => [worker.name, worker]),
  );
  const wanted = wantedSlots(pool, workers, unfinished.get(pool.pool) ?? 0, now);
  let busy = false;
  for (const name of new Set([...workers.keys(), ...wanted, ...managed(tpus)])) {
    const place = parseWorkerName(name);
    if (!place) continue;
    const worker = await lookAtWorker(deps, name, place, observe(name, place.zone), wanted.has(name));
    busy ||= worker.phase !== 'gone';
  }
  return busy;
}

/** Nodes with our label, whether or not a document knows them: a lost database must not leave a TPU behind. */
function managed(tpus: readonly Tpu[]): string[] {
  return tpus.filter(tpu => tpu.labels['managed-by'] === MANAGED['managed-by']).map(tpu => tpu.name);
}

/** Null when the node has no such label: nothing says then that it is not the present life. */
function incarnationOf(tpu: Tpu): number | null {
  const label = tpu.labels[INCARNATION_LABEL];
  return label !== undefined && /^\d{1,9}$/.test(label) ? Number(label) : null;
}

async function lookAtWorker(
  deps: Deps,
  name: string,
  place: {pool: string; zone: string; slot: number},
  observation: Observation,
  wanted: boolean,
): Promise<Worker> {
  let actions: WorkerAction[] = [];
  const worker = await deps.store.transaction(async tx => {
    const now = deps.now();
    const current = (await workerRecords.get(tx, name)) ?? newWorker(name, place, now);
    const stream = await streamOf(tx, current);
    const decision = decideWorker(current, observation, wanted, deps.config.limits, now);
    actions = decision.actions;
    if (decision.worker === current) return current;
    workerRecords.set(tx, {...decision.worker, updated_at: iso(now)});
    if (current.phase !== 'deleting' && decision.worker.phase === 'deleting') {
      recordAttempt(tx, current, decision, now);
      if (stream) streamRecords.set(tx, revokeLease(stream, now));
    }
    for (const text of decision.events) tell(tx, {kind: 'worker', worker: name, text}, now);
    return decision.worker;
  });
  await publishActions(deps, actions);
  return worker;
}

/** The stream whose lease the worker has, so that its death frees the stream at once. */
async function streamOf(tx: Transaction, worker: Worker): Promise<Stream | undefined> {
  const [run, stream] = worker.work?.split('/') ?? [];
  if (!run || !stream) return undefined;
  const found = await streamRecords.get(tx, run, stream);
  const {lease} = found ?? {};
  return lease?.worker === worker.name && lease.incarnation === worker.incarnation ? found : undefined;
}

/** Each life of a slot leaves a document behind: how long it was, what ended it, where its log is. */
function recordAttempt(tx: Transaction, worker: Worker, decision: WorkerDecision, now: number): void {
  tx.set(paths.attempt(worker.name, worker.incarnation), {
    worker: worker.name,
    incarnation: worker.incarnation,
    cause:
      decision.worker.last_death === worker.last_death ? 'not needed any more' : decision.worker.last_death,
    last_phase: worker.phase,
    provider_state: decision.worker.provider_state,
    work: worker.work,
    log: logObject(worker.name, worker.incarnation),
    ended_at: iso(now),
  });
}

/** Whether a beat is needed, asked anew after it was switched off. */
async function isAnythingLeft(deps: Deps): Promise<boolean> {
  const living: Phase[] = ['creating', 'booting', 'idle', 'working', 'draining', 'deleting'];
  if ((await deps.store.count('workers', [{field: 'phase', op: 'in', value: living}])) > 0) return true;
  const open = await unfinishedStreams(deps);
  return [...open.values()].some(count => count > 0);
}
