/** Counts of the jobs that wait for a worker. */
import type {Pool} from '../../domain/fleet/pool.ts';
import type {Filter} from '../../ports.ts';
import type {Deps} from '../deps.ts';
import type {Failures} from '../failures.ts';

/** Filter for the places in the queue of a pool, `POOL/PRIORITY/TIME/ID`. `0` is the character after `/`. */
export function queueOf(pool: string): Filter[] {
  return [
    {field: 'queue', op: '>=', value: `${pool}/`},
    {field: 'queue', op: '<', value: `${pool}0`},
  ];
}

/** Counts the waiting jobs of each pool. A pool whose count failed is missing. Without a waiting job this is one count. */
export async function countWaiting(
  {store, config}: Deps,
  pools: readonly Pool[],
  failures: Failures,
): Promise<Map<string, number>> {
  const count = (where: Filter[]) =>
    failures.isolate('count the waiting jobs', () => store.count(config.jobs_collection, where));
  const all = await count([{field: 'queue', op: '>', value: ''}]);
  const waiting = new Map<string, number>();
  for (const {pool} of pools) {
    const jobs = all === 0 ? 0 : await count(queueOf(pool));
    if (jobs !== undefined) waiting.set(pool, jobs);
  }
  return waiting;
}
