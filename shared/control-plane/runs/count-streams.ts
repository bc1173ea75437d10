/** Counts and sums over the streams of a run, computed by the Store. */
import {runAtWork} from '../../domain/billing/cost.ts';
import {type Pool, slotsFor} from '../../domain/fleet/pool.ts';
import {paths} from '../../domain/names.ts';
import {isRunnable, type Run, SUMMED} from '../../domain/run/run.ts';
import {isUnfinished} from '../../domain/stream/stream.ts';
import type {StreamCounts} from '../../domain/tick/snapshot.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Filter, Store, Stored} from '../../ports.ts';
import {COMPLETED, FAILED, LEASED, streamRecords, UNFINISHED} from '../documents/documents.ts';

/** Counts the streams of a run. A stream whose document is left alone is not over, and keeps no node where no other stream waits. */
export async function countStreams(
  store: Store,
  of: Run,
  pool: Pool | undefined,
  workers: ReadonlyMap<string, Worker>,
): Promise<StreamCounts> {
  const {run} = of;
  const {streams, unfinished, totals} = await totalsOf(store, run);
  const {streams_completed, streams_failed, streams_pending, streams_in_progress} = totals;
  const areAllOver = streams > 0 && streams_completed + streams_failed === streams;
  const isBound = of.affinity === 'fixed' && isRunnable(of) && pool !== undefined;
  const slots = isBound ? await boundSlots(store, of, pool) : [];
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
  return {streams, unfinished: served, totals, areAllOver, slots};
}

/** Unfinished streams that a tick reads to find those that no node can serve, among the last ones of a run. */
const FEW = 10;
/** Unfinished streams that a tick reads of a run with many, if its first one is left alone. None understood: only the holders have work. */
const PAGE = 500;

/** Counts the streams that a worker has or can get: not those whose document, or that of their holder, is left alone. */
function servedOf(stored: Stored[], workers: ReadonlyMap<string, Worker>): number {
  const understood = streamRecords.parseAll(stored, () => {});
  return understood.filter(({lease}) => lease === null || workers.has(lease.worker)).length;
}

/**
 * Counts and sums the streams of a run. `streams`: all of them. `unfinished`: those that a worker may get or has; a single count covers both
 * statuses, because two could miss a stream that changes its status between them. A stream of any other status counts as pending.
 */
export async function totalsOf(
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
    store.query(streams, {where: [FAILED], limit: 1}),
    store.sum(streams, SUMMED),
  ]);
  const [first] = failed;
  const totals = {
    streams_pending: Math.max(0, all - completed - failures - leased),
    streams_in_progress: leased,
    streams_failed: failures,
    streams_completed: completed,
    ...sums,
    failed: first && {stream: first.id, last_error: textOf(first.data.last_error)},
  };
  return {streams: all, unfinished, totals};
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

function textOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}
