/** Counts and sums over the streams of a run, computed by the Store. */
import {type Pool, slotsFor} from '../../domain/fleet/pool.ts';
import {paths} from '../../domain/names.ts';
import {isRunnable, type Run, SUMMED} from '../../domain/run/run.ts';
import {isUnfinished} from '../../domain/stream/stream.ts';
import type {StreamCounts} from '../../domain/tick/snapshot.ts';
import type {Filter, Store} from '../../ports.ts';
import {FAILED, LEASED, PENDING, streamRecords, UNFINISHED} from '../documents/documents.ts';
import {pagesOf} from '../documents/pages.ts';

/**
 * Counts the streams of a run. For a run of `affinity: any` it reads a single stream: not all unfinished documents may be invalid. A
 * single count covers both unfinished statuses: two counts could both miss a stream that changes its status between them.
 */
export async function countStreams(store: Store, of: Run, pool: Pool | undefined): Promise<StreamCounts> {
  const {run} = of;
  const {streams, unfinished, totals} = await totalsOf(store, run);
  const areAllOver = unfinished === 0 ? streams > 0 : !(await isAnyUnfinished(store, run));
  const isBound = of.affinity === 'fixed' && isRunnable(of) && pool !== undefined;
  const slots = isBound ? await boundSlots(store, of, pool) : [];
  const invalid = isRunnable(of) ? await invalidAmongFew(store, run, totals.streams_pending) : 0;
  return {streams, unfinished: unfinished - invalid, totals, areAllOver, slots};
}

/** Pending streams that a tick reads to find invalid documents among the last ones of a run. */
const FEW = 10;

/** Counts invalid documents among few pending streams: no worker can get such a stream, so no node is created for it. */
async function invalidAmongFew(store: Store, run: string, pending: number): Promise<number> {
  if (pending === 0 || pending > FEW) return 0;
  const stored = await store.query(paths.streams(run), {where: [PENDING], limit: FEW});
  return stored.length - streamRecords.parseAll(stored, () => {}).length;
}

/** Counts and sums the streams of a run. `streams`: all of them. */
export async function totalsOf(
  store: Store,
  run: string,
): Promise<Pick<StreamCounts, 'streams' | 'unfinished' | 'totals'>> {
  const streams = paths.streams(run);
  const [unfinished, leased, failures, all, failed, sums] = await Promise.all([
    store.count(streams, [UNFINISHED]),
    store.count(streams, [LEASED]),
    store.count(streams, [FAILED]),
    store.count(streams),
    store.query(streams, {where: [FAILED], limit: 1}),
    store.sum(streams, SUMMED),
  ]);
  const [first] = failed;
  const totals = {
    streams_pending: Math.max(0, unfinished - leased),
    streams_in_progress: Math.min(leased, unfinished),
    streams_failed: failures,
    streams_completed: Math.max(0, all - unfinished - failures),
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

/** True if an unfinished stream has a valid document. A stream with an invalid document counts as failed. */
export async function isAnyUnfinished(store: Store, run: string): Promise<boolean> {
  for await (const page of pagesOf(store, paths.streams(run), {where: [UNFINISHED]}, 1))
    if (streamRecords.parseAll(page, () => {}).length > 0) return true;
  return false;
}
