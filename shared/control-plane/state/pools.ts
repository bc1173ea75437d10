/** The pool, as messages have left it, and as the bucket keeps it where its document cannot be read. */
import {clipPool} from '../../domain/ceilings.ts';
import type {Pool} from '../../domain/fleet/pool.ts';
import type {Deps} from './deps.ts';
import {poolRecords, unlessBroken} from './documents.ts';
import {restorePool} from './orders.ts';

/**
 * A broken document counts as absent: the pool is then as it was deployed. A document that a person edited never exceeds the
 * deployment's ceilings.
 */
export async function readPool(deps: Deps): Promise<Pool> {
  const {pool, ceilings} = deps.config;
  const found = await unlessBroken(deps, () => poolRecords.get(deps.store, pool));
  return clipPool(found ?? pool, ceilings);
}

/** One whose document is not there, or is broken, is first made again as messages had left it: its budget holds. */
export async function knownPool(deps: Deps): Promise<Pool> {
  const known = await unlessBroken(deps, () => poolRecords.find(deps.store, deps.config.pool));
  const found = known ?? (await unlessBroken(deps, () => restorePool(deps)));
  return found ? clipPool(found, deps.config.ceilings) : readPool(deps);
}
