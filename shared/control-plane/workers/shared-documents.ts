/**
 * Documents that decisions about several slots share: zones, the pool and runs. The transaction of the decisions reads them first, changes
 * them in memory, and writes each once.
 */
import {runAtWork, runsAmong} from '../../domain/billing/cost.ts';
import type {Months} from '../../domain/billing/monthly-spending.ts';
import type {Pool} from '../../domain/fleet/pool.ts';
import type {Run} from '../../domain/run/run.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import type {Terms} from '../../domain/tick/slots.ts';
import {type Death, isMachineDeath} from '../../domain/worker/liveness.ts';
import type {Moment} from '../../domain/worker/served-time.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import {
  afterMachineDeath,
  afterMachineFailedStream,
  afterTry,
  afterUnheardBoot,
  isStopped,
  mayBoot,
} from '../../domain/zone/breakers.ts';
import type {Zone} from '../../domain/zone/placement.ts';
import {
  afterCreate,
  afterLostBoot,
  afterUnheard,
  decideSilence,
  type Verdict,
} from '../../domain/zone/silence-brake.ts';
import type {Transaction} from '../../ports.ts';
import type {Deps} from '../deps.ts';
import {setInvalid} from '../documents/document-kind.ts';
import {
  poolRecords,
  runRecords,
  skipIfInvalid,
  spendingRecords,
  zoneRecords,
} from '../documents/documents.ts';
import {recordEvent, recordPause} from '../documents/event-log.ts';
import {zoneOf} from '../documents/zones.ts';
import {addBill, type Bill, readBill} from './bills.ts';
import {type BilledDocument, billInvalidPayers} from './invalid-payers.ts';
import type {Turn} from './slot-decisions.ts';

export type Shared = {
  zones: Map<string, Zone>;
  runs: Map<string, Run>;
  /** Undefined if its document is invalid: no node is created until an operator mends the document. */
  pool: Pool | undefined;
  spending: {months: Months} | undefined;
  bill: Bill;
  /** Payers with an invalid document. */
  invalidPayers: BilledDocument[];
};

export async function readShared(
  deps: Deps,
  tx: Transaction,
  pool: string,
  turns: readonly Turn[],
  over: readonly Worker[],
  now: number,
): Promise<Shared> {
  const {config, log} = deps;
  const zones = new Set(
    turns.flatMap(({before, change, death}) => (change || death || before.is_probe ? before.zone : [])),
  );
  const isPoolNeeded =
    over.length > 0 ||
    turns.some(
      ({before, change, death}) =>
        change === 'asked' || ((death || before.is_probe) && before.hello_at === null),
    );
  const deaths = turns.filter(({death}) => death && isMachineDeath(death));
  const runs = new Set([
    ...over.flatMap(({costs}) => runsAmong(costs)),
    ...deaths.flatMap(({before}) => runAtWork(before) ?? []),
  ]);
  const payers = {
    runs: new Map(
      (await Promise.all([...runs].map(run => skipIfInvalid(log, () => runRecords.get(tx, run))))).flatMap(
        run => (run ? [[run.run, run] as const] : []),
      ),
    ),
    pool: isPoolNeeded ? await skipIfInvalid(log, () => poolRecords.find(tx, pool, config.pool)) : undefined,
    spending: over.length > 0 ? await skipIfInvalid(log, () => spendingRecords.get(tx)) : undefined,
    bill: await readBill(log, tx, over),
  };
  return {
    ...payers,
    zones: new Map(
      await Promise.all(
        [...zones].map(async zone => [zone, await zoneOf(deps, tx, {zone, pool}, now)] as const),
      ),
    ),
    invalidPayers: await billInvalidPayers(log, tx, payers, pool),
  };
}

/** Writes the changed documents. */
export function writeShared(tx: Transaction, before: Shared, shared: Shared, now: number): void {
  const after = addBill(tx, shared, now);
  for (const {path, data} of shared.invalidPayers) setInvalid(tx, path, data);
  for (const zone of after.zones.values())
    if (zone !== before.zones.get(zone.zone)) zoneRecords.set(tx, zone);
  for (const run of after.runs.values()) if (run !== before.runs.get(run.run)) runRecords.set(tx, run);
  if (after.pool && after.pool !== before.pool) poolRecords.set(tx, after.pool);
  if (after.spending && after.spending !== before.spending) spendingRecords.set(tx, after.spending);
}

export function changeZone({zones}: Shared, name: string, change: (zone: Zone) => Zone): void {
  const zone = zones.get(name);
  if (zone) zones.set(name, change(zone));
}

/** Verdict of the zone's brake on a silent worker; undefined for any other worker. */
export function judgeSilence(
  {config}: Deps,
  shared: Shared,
  {before, death}: Turn,
  {heard, lost}: Pick<Terms, 'heard' | 'lost'>,
  moment: Moment,
): Verdict | undefined {
  const zone = shared.zones.get(before.zone);
  if (death?.kind !== 'silent' || !zone) return undefined;
  const {silent_s} = config.limits;
  const silent = {
    worker: before,
    heard: heard.get(zone.zone) ?? 0,
    isLost: lost.has(before.name),
    silent_s,
  };
  const {verdict, brake} = decideSilence(zone.brake, silent, moment);
  changeZone(shared, zone.zone, zone => ({...zone, brake}));
  return verdict;
}

/** Returns the facts of a new node if the node may boot: a probe always, others unless pool or zone stop creates. */
export function grantBoot(
  {config}: Deps,
  shared: Shared,
  name: string,
  now: number,
): Pick<Worker, 'is_probe' | 'bundle'> | undefined {
  const zone = shared.zones.get(name);
  const {pool} = shared;
  if (!zone || !pool) return undefined;
  const {bundle} = config;
  const isProbe = zone.brake !== null && zone.brake.probes_due > 0;
  const mayTry = mayBoot(pool.boots, bundle, now) && mayBoot(zone.boots, bundle, now);
  if (!isProbe && !mayTry) return undefined;
  if (isProbe)
    changeZone(shared, name, ({brake, ...zone}) => ({...zone, brake: brake && afterCreate(brake)}));
  else if (isStopped(pool.boots, bundle) || isStopped(zone.boots, bundle)) {
    shared.pool = {...pool, boots: afterTry(pool.boots, now)};
    changeZone(shared, name, zone => ({...zone, boots: afterTry(zone.boots, now)}));
  }
  return {is_probe: isProbe, bundle};
}

/** Takes back the try of a node that ended before it could send a heartbeat. */
export function giveBootBack(shared: Shared, worker: Worker): void {
  const zone = shared.zones.get(worker.zone);
  if (!zone || !shared.pool) return;
  const after = afterLostBoot(zone, shared.pool, worker);
  shared.zones.set(zone.zone, after.zone);
  shared.pool = after.pool;
}

/**
 * Counts a node that was READY and never sent a heartbeat. A node that was heard before a repair is no evidence about boots. A node of
 * an earlier bundle is no evidence about this bundle.
 */
export function countUnheard(
  {config, log}: Deps,
  tx: Transaction,
  shared: Shared,
  worker: Worker,
  now: number,
): void {
  const {bundle} = config;
  changeZone(shared, worker.zone, zone => ({...zone, brake: zone.brake && afterUnheard(zone.brake, worker)}));
  if (worker.hello_at !== null || (worker.bundle ?? bundle) !== bundle) return;
  const about = {kind: 'worker', worker: worker.name} as const;
  const advice = `one an hour is tried; deploy a bundle that works, or send {"action":"resume","pool":"${worker.pool}"}`;
  const count = <T extends Zone | Pool>(name: string, document: T): T => {
    const boots = afterUnheardBoot(document.boots, bundle, now);
    if (isStopped(boots, bundle) && !isStopped(document.boots, bundle)) {
      const text = `Creates of ${name} stop: ${boots.unheard} nodes in a row were READY and never spoke; ${advice}`;
      log('ERROR', text, {worker: worker.name, signal: 'creates-stopped'});
      recordEvent(tx, {...about, text}, now);
    }
    return {...document, boots};
  };
  changeZone(shared, worker.zone, zone => count(`zone ${zone.zone}`, zone));
  if (shared.pool) shared.pool = count(`pool ${shared.pool.pool}`, shared.pool);
}

/** Counts a machine that died at work on a run, and its failed stream, if any. */
export function countMachineDeath(
  {log}: Deps,
  tx: Transaction,
  shared: Shared,
  {before, verdict}: Turn,
  death: Death,
  failed: Stream | undefined,
  stored: ReadonlyMap<string, number>,
  now: number,
): void {
  const run = shared.runs.get(runAtWork(before) ?? '');
  if (!run) return;
  const machine = {worker: before.name, cause: death.cause, is_judged: verdict !== 'ends'};
  const counted = afterMachineDeath(run, {...machine, total_shards: stored.get(run.run) ?? 0}, now);
  const next = failed ? afterMachineFailedStream(counted, failed.stream, now) : counted;
  shared.runs.set(run.run, next);
  recordPause(log, tx, run, next, now);
}
