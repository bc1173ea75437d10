import {NotUnderstood} from '../../contracts/errors.ts';
import {OPEN} from '../../domain/records/limiter.ts';
import type {Zone} from '../../domain/records/zone.ts';
import {iso} from '../../domain/time.ts';
import {isLeftAlone, newZone} from '../../domain/zone/placement.ts';
import type {Store, Transaction} from '../../ports/ports.ts';
import type {Services} from '../calls/services.ts';
import {leftAlone, zoneRecords} from './documents.ts';

export type ZoneOfPool = {zone: string; pool: string};

/** Stand-in for a zone whose document is invalid: no create, and its silent nodes and orphans are held. Other zones of its pool get creates. */
export function zoneLeftAlone(zone: string, pool: string | null, now: number): Zone {
  const stop = {state: 'stopped', cause: 'person', reason: 'its document is invalid'} as const;
  return {...newZone(zone, now, pool), limiter: {...OPEN, ...stop, since_at: iso(now)}};
}

/** Reads the zone's document of the pool. Returns a new zone if the document is absent. */
export async function zoneOf(
  {log, config}: Services,
  from: Store | Transaction,
  {zone, pool}: ZoneOfPool,
  now: number,
): Promise<Zone> {
  const owner = pool === config.pool.pool ? null : pool;
  try {
    return (await zoneRecords.get(from, zone, owner)) ?? newZone(zone, now, owner);
  } catch (error) {
    if (!(error instanceof NotUnderstood)) throw error;
    leftAlone(log)(error);
    return zoneLeftAlone(zone, owner, now);
  }
}

/** Changes the zone's document in a transaction of its own. Writes nothing if `change` returns the same object, or if the document is invalid. */
export async function changeZone(
  deps: Services,
  which: ZoneOfPool,
  change: (zone: Zone, tx: Transaction, now: number) => Zone,
): Promise<void> {
  await deps.store.transaction(async tx => {
    const at = deps.now();
    const zone = await zoneOf(deps, tx, which, at);
    if (isLeftAlone(zone)) return;
    const next = change(zone, tx, at);
    if (next !== zone) zoneRecords.set(tx, next);
  });
}
