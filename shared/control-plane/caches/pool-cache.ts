/** Reads of pools by name, and the cache of pools that many requests of workers share. */
import type {Config} from '../../contracts/settings/config.ts';
import {clipPool} from '../../domain/billing/ceilings.ts';
import {poolNameProblem} from '../../domain/deployment.ts';
import {fillsPool, LARGE} from '../../domain/fleet/slots.ts';
import type {Pool} from '../../domain/records/pool.ts';
import type {Run} from '../../domain/records/run.ts';
import type {Now, Store} from '../../ports/ports.ts';
import type {Log} from '../calls/log.ts';
import {leftAlone, poolRecords, skipIfInvalid, withDeployed} from '../documents/documents.ts';
import {SharedReads} from './shared-reads.ts';

type Reader = {store: Store; config: Config; log: Log};

/**
 * Reads a pool for the settings of its workers; undefined if it has no valid document. While the document of the deployment's own pool is
 * invalid, the deployment's settings apply. An edited document never exceeds the ceilings of the deployment.
 */
export async function readPool({store, config, log}: Reader, name: string): Promise<Pool | undefined> {
  const stored = await skipIfInvalid(log, () => poolRecords.find(store, name, config.pool));
  const pool = stored ?? (name === config.pool.pool ? config.pool : undefined);
  return pool && clipPool(pool, config.ceilings);
}

/** Every pool, the deployment's own first. `unreadable`: names of pools whose document is invalid. */
export async function readPools(deps: Reader): Promise<{pools: [Pool, ...Pool[]]; unreadable: Set<string>}> {
  const {store, config, log} = deps;
  let own = config.pool;
  const others: Pool[] = [];
  const unreadable = new Set<string>();
  for (const stored of await store.query('pools')) {
    const name = stored.id;
    const why = name === own.pool ? undefined : poolNameProblem(name, config.deployment);
    if (why) log('ERROR', `pools/${name} is not a pool: ${why}`);
    const parsed = poolRecords.parseAll(why ? [] : [stored], error => {
      unreadable.add(name);
      leftAlone(log)(error);
    });
    for (const found of parsed)
      if (name === own.pool) own = withDeployed(found, config.pool);
      else others.push({...found, pool: name});
  }
  const [first, ...more] = [own, ...others].map(pool => clipPool(pool, config.ceilings));
  return {pools: [first ?? own, ...more], unreadable};
}

export async function missingPoolText(deps: Reader, name: string): Promise<string> {
  const {pools, unreadable} = await readPools(deps);
  if (unreadable.has(name)) return `the document of pool "${name}" is invalid: fix it`;
  const names = pools.map(({pool}) => pool).join(', ');
  return `there is no pool "${name}"; the pools are ${names}. Create one with the message {"action":"pool","pool":"${name}",…}, or name another`;
}

const SHARED_MS = 2000;

export class KnownPools extends SharedReads<Pool | undefined> {}

type Caching = Reader & {now: Now; knownPools: KnownPools};

/** The pool as it was at most two seconds ago; undefined if it has no valid document. */
export function poolOf(deps: Caching, name: string): Promise<Pool | undefined> {
  const {knownPools, now} = deps;
  return knownPools.readSince(name, now() - SHARED_MS, now, () => readPool(deps, name));
}

/** True if no tick is needed when a stream of the large run comes or ends, or when its TPU is preempted. */
export async function needsNoTick(deps: Caching, run: Run): Promise<boolean> {
  const pool = await poolOf(deps, run.pool);
  return pool !== undefined && fillsPool(run, pool);
}

export const isLarge = (run: Run | undefined): run is Run => (run?.streams_pending ?? 0) >= LARGE;
