import type {Config} from '../../contracts/config.ts';
import {clipPool} from '../../domain/ceilings.ts';
import type {Pool} from '../../domain/fleet/pool.ts';
import type {Store} from '../../ports.ts';
import {poolRecords, skipIfInvalid} from './documents.ts';
import type {Log} from './log.ts';

/**
 * Reads the pool. An invalid document counts as absent: then the deployment sets the pool. An edited document never exceeds the
 * ceilings of the deployment.
 */
export async function readPool({
  store,
  config,
  log,
}: {
  store: Store;
  config: Config;
  log: Log;
}): Promise<Pool> {
  const found = await skipIfInvalid(log, () => poolRecords.get(store, config.pool));
  return clipPool(found ?? config.pool, config.ceilings);
}
