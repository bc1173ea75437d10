/** Pools, their zones and their TPUs, with why a zone gives none and what it met since yesterday. */
import {zoneRecords} from '../../shared/control-plane/documents/documents.ts';
import {addCounts, CLEAR, type Counts} from '../../shared/domain/records/churn.ts';
import type {Waiting} from '../../shared/domain/records/constraint.ts';
import type {Pool} from '../../shared/domain/records/pool.ts';
import type {Zone} from '../../shared/domain/records/zone.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {readFleet} from '../cloud/fleet.ts';
import {keptText, type Totals, type TpuRow, totalsOf, tpuRow, whyNone} from './tpus.ts';

/** `waits`: why the zone gets no further TPU. `day`: what its requests and TPUs met today and yesterday, in UTC. `gone`: names of TPUs. */
export type ZoneView = {
  zone: string;
  waits: Waiting | null;
  day: Counts;
  held: number;
  tpus: TpuRow[];
  gone: string[];
};
/** `pool`: its document; null for the deployment's own pool before a message has changed it. */
export type PoolView = {
  name: string;
  pool: Pool | null;
  kept: string | undefined;
  totals: Totals;
  zones: ZoneView[];
};

/** `none`: why no TPU is there, and whether work waits for one. */
export type FleetView = {totals: Totals; pools: PoolView[]; none: {text: string; waits: boolean}[]};

export async function readFleetView(cloud: Cloud, now: number): Promise<FleetView> {
  const fleet = await readFleet(cloud);
  const zones = zoneRecords.parseAll(await cloud.store.query('zones'), () => {});
  const rows = fleet.workers.map(worker => tpuRow(worker, fleet.pools, now));
  const pools = fleet.names.map(name => {
    const pool = fleet.pools.find(each => each.pool === name) ?? null;
    const own = rows.filter(row => row.pool === name);
    return {
      ...{name, pool, totals: totalsOf(own)},
      kept: pool ? keptText(pool, fleet.workers, now) : undefined,
      zones: zonesOf(pool, name, own, zones, now),
    };
  });
  const totals = totalsOf(rows);
  const none = totals.tpus > 0 ? [] : await whyNone(cloud.store);
  return {totals, pools, none};
}

/** The zones of the pool, and zones in which it still has TPUs. */
function zonesOf(
  pool: Pool | null,
  name: string,
  rows: readonly TpuRow[],
  zones: readonly Zone[],
  now: number,
): ZoneView[] {
  const places = new Set([...(pool?.zones ?? []), ...rows.map(({zone}) => zone)]);
  const isShown = ({phase, held}: TpuRow) => phase !== 'gone' || held;
  return [...places].sort().map(zone => {
    const own = rows
      .filter(row => row.zone === zone)
      .sort((one, other) => one.tpu.length - other.tpu.length || one.tpu.localeCompare(other.tpu));
    const known = zones.find(each => each.zone === zone && (each.pool ?? name) === name);
    return {
      ...{zone, waits: pool?.zones_wait[zone] ?? null, held: known?.silence_guard?.held ?? 0},
      day: lastDay(known, now),
      tpus: own.filter(isShown),
      gone: own.filter(row => !isShown(row)).map(({tpu}) => tpu),
    };
  });
}

function lastDay(zone: Zone | undefined, now: number): Counts {
  const since = iso(now - 86_400_000).slice(0, 10);
  return (zone?.churn ?? []).filter(({day}) => day >= since).reduce<Counts>(addCounts, CLEAR);
}
