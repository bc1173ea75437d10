import {revokeLease} from '../core/lease.ts';
import {logObject, parseWorkerName, paths} from '../core/names.ts';
import {wantedSlots} from '../core/pool.ts';
import {isRunnable, type Run} from '../core/run.ts';
import type {Stream} from '../core/stream.ts';
import {iso, msOf} from '../core/time.ts';
import {
  decideWorker,
  newWorker,
  type Observation,
  type Worker,
  type WorkerAction,
  type WorkerDecision,
} from '../core/worker.ts';
import type {Filter, Tpu, Transaction} from '../ports.ts';
import type {Deps} from './deps.ts';
import {INCARNATION_LABEL, MANAGED, publishActions} from './fleet.ts';
import {runRecords, streamRecords, unlessBroken, workerRecords} from './records.ts';
import {tell} from './timeline.ts';

/** What Cloud TPU listed, and when that was asked for. */
export type Look = {at_ms: number; tpus: ReadonlyMap<string, Tpu>; unreachable: readonly string[]};

const NOT_LOOKED: Look = {at_ms: 0, tpus: new Map(), unreachable: []};

/** After work came in: asks for the TPUs it wants without waiting for the tick, concluding nothing about nodes it has not seen. */
export async function lookForWork(deps: Deps): Promise<void> {
  await lookAtWorkers(deps, await unfinishedStreams(deps), NOT_LOOKED);
}

/** How many unfinished streams the runnable runs of each pool have. */
export async function unfinishedStreams(deps: Deps): Promise<Map<string, number>> {
  const unfinished = new Map<string, number>();
  for (const run of await openRuns(deps)) {
    if (!isRunnable(run)) continue;
    const where: Filter[] = [{field: 'status', op: 'in', value: ['pending', 'in_progress']}];
    const count = await deps.store.count(paths.streams(run.run), where);
    unfinished.set(run.pool, (unfinished.get(run.pool) ?? 0) + count);
  }
  return unfinished;
}

export async function openRuns(deps: Deps): Promise<Run[]> {
  const open = await deps.store.query('runs', {
    where: [{field: 'status', op: 'in', value: ['active', 'paused']}],
  });
  return runRecords.parseAll(open, error => deps.log('ERROR', error.message));
}

/** Decides about every slot that has a worker or should have one; true while any is not gone. */
export async function lookAtWorkers(
  deps: Deps,
  unfinished: ReadonlyMap<string, number>,
  look: Look,
): Promise<boolean> {
  const {pool} = deps.config;
  const stored = await deps.store.query('workers');
  const workers = new Map(
    workerRecords
      .parseAll(stored, error => deps.log('ERROR', error.message))
      .map(worker => [worker.name, worker]),
  );
  const wanted = wantedSlots(pool, workers, unfinished.get(pool.pool) ?? 0, deps.now());
  let busy = false;
  for (const name of new Set([...workers.keys(), ...wanted, ...managed(look.tpus)])) {
    const place = parseWorkerName(name);
    if (!place) continue;
    const worker = await unlessBroken(deps, () => lookAtWorker(deps, name, place, look, wanted.has(name)));
    busy ||= worker?.phase !== 'gone';
  }
  return busy;
}

/** Nodes with our label, whether or not a document knows them: a lost database must not leave a TPU behind. */
function managed(tpus: ReadonlyMap<string, Tpu>): string[] {
  return [...tpus.values()]
    .filter(tpu => tpu.labels['managed-by'] === MANAGED['managed-by'])
    .map(tpu => tpu.name);
}

/**
 * What a look shows of a slot. A look from before the slot entered its phase says nothing about it: the node may have come
 * or gone since.
 */
function observe(look: Look, worker: Worker): Observation {
  if (look.at_ms < msOf(worker.phase_since_at)) return {kind: 'unknown'};
  const tpu = look.tpus.get(worker.name);
  if (tpu) return {kind: 'node', state: tpu.state, health: tpu.health, incarnation: incarnationOf(tpu)};
  return look.unreachable.includes(worker.zone) ? {kind: 'unknown'} : {kind: 'absent'};
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
  look: Look,
  wanted: boolean,
): Promise<Worker> {
  let actions: WorkerAction[] = [];
  const worker = await deps.store.transaction(async tx => {
    const now = deps.now();
    const current = (await workerRecords.get(tx, name)) ?? newWorker(name, place, now);
    const stream = await streamOf(tx, current);
    const decision = decideWorker(current, observe(look, current), wanted, deps.config.limits, now);
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
