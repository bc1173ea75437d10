import {paths} from '../../domain/names.ts';
import {exact, isOpen, SUMMED} from '../../domain/run/run.ts';
import {iso} from '../../domain/time.ts';
import type {Deps} from '../state/deps.ts';
import {runRecords} from '../state/documents.ts';

/**
 * Adds late shards to the totals of an ended run: ticks sum up open runs only. Called after the end of a run and after each late shard,
 * so the later call sees both. A rebuild may also find fewer shards: `isRebuilt` replaces the totals by any other sums.
 */
export async function addLateShards(
  {store, now}: Pick<Deps, 'store' | 'now'>,
  run: string,
  isRebuilt = false,
): Promise<void> {
  const parent = await runRecords.get(store, run);
  if (!parent || isOpen(parent)) return;
  const sums = exact(await store.sum(paths.streams(run), SUMMED));
  await store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    if (!current || isOpen(current)) return;
    if (isRebuilt ? sums.total_shards === current.total_shards : sums.total_shards <= current.total_shards)
      return;
    runRecords.set(tx, {...current, ...sums, updated_at: iso(now())});
  });
}
