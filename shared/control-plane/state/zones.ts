import {newZone, type Zone} from '../../domain/fleet/placement.ts';
import type {Now, Store, Transaction} from '../../ports.ts';
import {skipIfInvalid, zoneRecords} from './documents.ts';
import type {Log} from './log.ts';

/** Reads the zone's document. Returns a new zone if the document is absent or invalid. */
export async function zoneOf(log: Log, tx: Transaction, zone: string, now: number): Promise<Zone> {
  return (await skipIfInvalid(log, () => zoneRecords.get(tx, zone))) ?? newZone(zone, now);
}

/** Changes the zone's document in a transaction of its own. Writes nothing if `change` returns the same object. */
export async function changeZone(
  {store, now, log}: {store: Store; now: Now; log: Log},
  name: string,
  change: (zone: Zone, tx: Transaction, now: number) => Zone,
): Promise<void> {
  await store.transaction(async tx => {
    const at = now();
    const zone = await zoneOf(log, tx, name, at);
    const next = change(zone, tx, at);
    if (next !== zone) zoneRecords.set(tx, next);
  });
}
