import {runAtWork} from '../../domain/billing/cost.ts';
import {slotsFor} from '../../domain/fleet/slots.ts';
import {paths} from '../../domain/names.ts';
import type {Pool} from '../../domain/records/pool.ts';
import {isRunnable, NO_STREAMS, type Run, type StreamTotals} from '../../domain/records/run.ts';
import {isUnfinished} from '../../domain/records/stream.ts';
import type {Worker, Workers} from '../../domain/records/worker.ts';
import {isCountedSince, markAfterCount} from '../../domain/run/marks.ts';
import {SUMMED} from '../../domain/run/summarize.ts';
import type {StreamCounts} from '../../domain/tick/snapshot.ts';
import type {Filter, Store, Stored} from '../../ports/ports.ts';
import type {Deps} from '../deps.ts';
import {COMPLETED, FAILED, LEASED, streamRecords, UNFINISHED} from '../documents/documents.ts';

/**
 * The streams of a run: from its document if the counts are current, else counted now. A stream whose document is invalid counts as
 * unfinished, but keeps no node if no other stream waits.
 */
export async function countStreams(
  deps: Deps,
  of: Run,
  pool: Pool | undefined,
  workers: Workers,
): Promise<StreamCounts> {
  const isCounted = !mayDiffer(deps, of, [...workers.values()]);
  const counts = isCounted ? storedCounts(of) : await countNow(deps, of, workers);
  const isBound = of.affinity === 'fixed' && isRunnable(of) && pool !== undefined;
  return isBound ? {...counts, slots: await knownSlots(deps, of, pool, isCounted)} : counts;
}

/**
 * True if the counts in the document of the run may be out of date: the run has a dirty flag, fewer workers hold its streams than it counts,
 * a worker waits although streams are pending, or all streams are over.
 */
function mayDiffer({openRuns, now}: Deps, run: Run, workers: readonly Worker[]): boolean {
  const {changed_at, streams_pending, streams_in_progress, streams_completed, streams_failed} = run;
  const last = openRuns.counts.get(run.run);
  const isKnown = last?.updated_at === run.updated_at && isCountedSince(run, last.counted_ms);
  if (changed_at !== null && (!isKnown || markAfterCount(run, now()) === null)) return true;
  const holders = workers.filter(worker => runAtWork(worker) === run.run).length;
  if (streams_in_progress > holders) return true;
  const isIdle = ({pool, phase}: Worker) => pool === run.pool && phase === 'idle';
  if (streams_pending > 0) return isRunnable(run) && workers.some(isIdle);
  const isOver = streams_in_progress === 0 && streams_completed + streams_failed > 0;
  return isOver && !(run.status === 'paused' && streams_failed > 0);
}

export function storedTotals(run: Run): StreamTotals {
  const fields = Object.keys(NO_STREAMS) as (keyof typeof NO_STREAMS)[];
  const totals = Object.fromEntries(fields.map(field => [field, run[field]])) as typeof NO_STREAMS;
  return {...totals, failed: undefined};
}

function storedCounts(run: Run): StreamCounts {
  const unfinished = run.streams_pending + run.streams_in_progress;
  const streams = unfinished + run.streams_completed + run.streams_failed;
  const areAllOver = streams > 0 && unfinished === 0;
  return {streams, unfinished, totals: storedTotals(run), areAllOver, slots: [], counted_ms: null};
}

/** The slots of the last count of a run, if neither its streams nor its pool have changed since. */
async function knownSlots({store, openRuns}: Deps, run: Run, pool: Pool, isCounted: boolean) {
  const of = JSON.stringify([pool.zones, pool.workers_per_zone]);
  const known = openRuns.slots.get(run.run);
  if (isCounted && known?.of === of) return known.slots;
  const slots = await boundSlots(store, run, pool);
  openRuns.slots.set(run.run, {of, slots});
  return slots;
}

async function countNow({store, now}: Deps, of: Run, workers: Workers) {
  const {run} = of;
  const counted_ms = now();
  const {streams, unfinished, totals} = await countTotals(store, run);
  const {streams_completed, streams_failed, streams_pending, streams_in_progress} = totals;
  const areAllOver = streams > 0 && streams_completed + streams_failed === streams;
  const holders = [...workers.values()].filter(worker => runAtWork(worker) === run).length;
  const mayBeAlone = isRunnable(of) && (streams_pending > 0 || streams_in_progress > holders);
  const servedAmong = async (limit: number) => {
    const stored = await store.query(paths.streams(run), {where: [UNFINISHED], limit});
    return servedOf(stored, workers);
  };
  const countServed = async () => {
    if (unfinished <= FEW) return servedAmong(FEW);
    return (await servedAmong(1)) > 0 || (await servedAmong(PAGE)) > 0 ? unfinished : holders;
  };
  const served = mayBeAlone ? await countServed() : unfinished;
  return {streams, unfinished: served, totals, areAllOver, slots: [], counted_ms};
}

/** Unfinished streams among the last of a run that a tick reads to find those that no node can serve. */
const FEW = 10;
/** Unfinished streams that a tick reads of a run with many, if the first one is invalid. If all of them are, only the holders have work. */
const PAGE = 500;

/** Counts the streams that a worker has or can get, leaving out those whose document, or that of their holder, is invalid. */
function servedOf(stored: Stored[], workers: Workers): number {
  const understood = streamRecords.parseAll(stored, () => {});
  return understood.filter(({lease}) => lease === null || workers.has(lease.worker)).length;
}

/**
 * Counts and sums the streams of a run. `streams`: all of them. `unfinished`: those that a worker has or may get. A single count covers both
 * statuses, because two counts could miss a stream that changes in between. A stream of any other status counts as pending.
 */
export async function countTotals(
  store: Store,
  run: string,
): Promise<Pick<StreamCounts, 'streams' | 'unfinished' | 'totals'>> {
  const streams = paths.streams(run);
  const [unfinished, completed, leased, failures, all, failed, sums] = await Promise.all([
    store.count(streams, [UNFINISHED]),
    store.count(streams, [COMPLETED]),
    store.count(streams, [LEASED]),
    store.count(streams, [FAILED]),
    store.count(streams),
    failedAmong(store, run),
    store.sum(streams, SUMMED),
  ]);
  const totals = {
    streams_pending: Math.max(0, all - completed - failures - leased),
    streams_in_progress: leased,
    streams_failed: failures,
    streams_completed: completed,
    ...sums,
    failed,
  };
  return {streams: all, unfinished, totals};
}

export async function failedAmong(store: Store, run: string): Promise<StreamTotals['failed']> {
  const [first] = await store.query(paths.streams(run), {where: [FAILED], limit: 1});
  const error = first?.data.last_error;
  return first && {stream: first.id, last_error: typeof error === 'string' ? error : null};
}

/** Slots with an unfinished stream of a run of `affinity: fixed`. Reads at most one stream for each slot of the pool. */
export async function boundSlots(store: Store, run: Run, pool: Pool): Promise<string[]> {
  const first = run.stream_offset;
  const numbers: Filter[] = [
    {field: 'worker_id', op: '>=', value: first},
    {field: 'worker_id', op: '<', value: first + pool.zones.length * pool.workers_per_zone},
  ];
  const bound = await store.query(paths.streams(run.run), {where: numbers});
  const unfinished = streamRecords.parseAll(bound, () => {}).filter(isUnfinished);
  return unfinished.flatMap(({worker_id}) => slotsFor(pool, run, worker_id) ?? []);
}
