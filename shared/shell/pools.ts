/** The pool, as messages have left it, and as the bucket keeps it where its document cannot be read. */
import type {Pool} from '../core/pool.ts';
import type {Deps} from './deps.ts';
import {restorePool} from './orders.ts';
import {poolRecords, unlessBroken} from './records.ts';

/** A document that somebody broke is as good as none: the pool is then what it was deployed as. */
export async function readPool(deps: Deps): Promise<Pool> {
  return (await unlessBroken(deps, () => poolRecords.get(deps.store, deps.config.pool))) ?? deps.config.pool;
}

/** One whose document is not there, or is broken, is first made again as messages had left it: its budget holds. */
export async function knownPool(deps: Deps): Promise<Pool> {
  const known = await unlessBroken(deps, () => poolRecords.find(deps.store, deps.config.pool));
  return known ?? (await unlessBroken(deps, () => restorePool(deps))) ?? readPool(deps);
}
