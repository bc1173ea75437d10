import type {Config} from '../../contracts/config.ts';
import {NotUnderstood} from '../../contracts/errors.ts';
import {iso} from '../../domain/time.ts';
import {newZone, type Zone} from '../../domain/zone/placement.ts';
import type {Now, Store, Transaction} from '../../ports.ts';
import type {Log} from '../log.ts';
import {leftAlone, zoneRecords} from './documents.ts';

type Reader = {log: Log; config: Config};
/** A zone as the pool of this name knows it. */
export type ZoneOfPool = {zone: string; pool: string};

/** A zone whose document is left alone gets no create. Other zones of its pool do. */
export function zoneLeftAlone(zone: string, pool: string | null, now: number): Zone {
  const blocked_until_at = iso(now + 3_600_000);
  return {...newZone(zone, now, pool), blocked_until_at, blocked_reason: 'its document is left alone'};
}

/** Reads the zone's document of the pool. Returns a new zone if the document is absent. */
export async function zoneOf(
  {log, config}: Reader,
  tx: Transaction,
  {zone, pool}: ZoneOfPool,
  now: number,
): Promise<Zone> {
  const owner = pool === config.pool.pool ? null : pool;
  try {
    return (await zoneRecords.get(tx, zone, owner)) ?? newZone(zone, now, owner);
  } catch (error) {
    if (!(error instanceof NotUnderstood)) throw error;
    leftAlone(log)(error);
    return zoneLeftAlone(zone, owner, now);
  }
}

/** Changes the zone's document in a transaction of its own. Writes nothing if `change` returns the same object. */
export async function changeZone(
  deps: Reader & {store: Store; now: Now},
  which: ZoneOfPool,
  change: (zone: Zone, tx: Transaction, now: number) => Zone,
): Promise<void> {
  await deps.store.transaction(async tx => {
    const at = deps.now();
    const zone = await zoneOf(deps, tx, which, at);
    const next = change(zone, tx, at);
    if (next !== zone) zoneRecords.set(tx, next);
  });
}
