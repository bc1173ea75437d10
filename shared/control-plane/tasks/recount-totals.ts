/** Totals of ended runs: ticks count open runs only. */
import {exact, isOpen, SUMMED} from '../../domain/run/run.ts';
import {iso} from '../../domain/time.ts';
import type {Deps} from '../deps.ts';
import {runRecords} from '../documents/documents.ts';
import {reopenRun} from '../documents/runs.ts';
import {totalsOf} from '../runs/count-streams.ts';

/**
 * Writes the totals of an ended run. A rebuild (`isRebuilt`) may find fewer shards; otherwise fewer shards come from an older count. A
 * completed or failed run that a rebuild changed is reopened, and ends again with its new result. A stopped run stays stopped, and only
 * its totals count streams that are not over.
 */
export async function updateTotals(
  {store, now}: Pick<Deps, 'store' | 'now'>,
  run: string,
  isRebuilt = false,
): Promise<void> {
  const {failed: _, gone: __, ...counted} = (await totalsOf(store, run)).totals;
  const totals = exact(counted);
  const all = Object.keys(totals) as (keyof typeof totals)[];
  await store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    if (!current || isOpen(current)) return;
    const fields = isRebuilt || current.status === 'cancelled' ? all : SUMMED;
    const isSame = fields.every(field => current[field] === totals[field]);
    if (isSame || (!isRebuilt && totals.total_shards < current.total_shards)) return;
    if (isRebuilt && reopenRun(tx, current, 'its streams were rebuilt', now())) return;
    const changed = Object.fromEntries(fields.map(field => [field, totals[field]]));
    runRecords.set(tx, {...current, ...changed, updated_at: iso(now())});
  });
}
