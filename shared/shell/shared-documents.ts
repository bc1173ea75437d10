/**
 * The documents that decisions about several slots change together: zones, the pool and runs. They are read before anything is
 * decided, changed in memory, and written once, in the transaction of the decisions.
 */
import {afterCreate, afterUnheard, decideSilence} from '../core/brake.ts';
import {
  afterMachineDeath,
  afterMachineFailedStream,
  afterTry,
  afterUnheardBoot,
  isStopped,
  mayBoot,
} from '../core/breakers.ts';
import {type Death, isMachineDeath} from '../core/death.ts';
import type {WorkerDecision} from '../core/life.ts';
import {parseWork} from '../core/names.ts';
import type {Zone} from '../core/placement.ts';
import type {Pool} from '../core/pool.ts';
import type {Run} from '../core/run.ts';
import type {Moment} from '../core/served.ts';
import type {Months} from '../core/spending.ts';
import type {Stream} from '../core/stream.ts';
import type {Worker} from '../core/worker.ts';
import type {Transaction} from '../ports.ts';
import type {Deps} from './deps.ts';
import {zoneOf} from './fleet.ts';
import {addBill, type Bill, readBill} from './money.ts';
import {poolRecords, runRecords, spendingRecords, unlessBroken, zoneRecords} from './records.ts';
import {tell, tellPaused} from './timeline.ts';

export type Shared = {
  zones: Map<string, Zone>;
  runs: Map<string, Run>;
  /** Undefined where its document cannot be read: the next tick makes it again. */
  pool: Pool | undefined;
  spending: {months: Months} | undefined;
  bill: Bill;
};

/** Facts about the fleet that the brakes of the zones need. */
export type Hush = {
  /** Workers of each zone that have spoken. */
  heard: ReadonlyMap<string, number>;
  /** Workers that have been silent, and stored nothing, for longer than any brake holds. */
  lost: ReadonlySet<string>;
};

type Turn = WorkerDecision & {before: Worker; change: string | undefined};

export async function readShared(
  deps: Deps,
  tx: Transaction,
  turns: readonly Turn[],
  over: readonly Worker[],
  now: number,
): Promise<Shared> {
  const zones = new Set(turns.flatMap(({before, change, death}) => (change || death ? before.zone : [])));
  const isPoolNeeded =
    over.length > 0 || turns.some(({change, death}) => change === 'asked' || death?.kind === 'unheard');
  const deaths = turns.filter(({death}) => death && isMachineDeath(death));
  const runs = new Set([
    ...over.flatMap(({costs}) => Object.keys(costs)),
    ...deaths.flatMap(({before}) => runAtWork(before) ?? []),
  ]);
  return {
    zones: new Map(
      await Promise.all([...zones].map(async name => [name, await zoneOf(deps, tx, name, now)] as const)),
    ),
    runs: new Map(
      (await Promise.all([...runs].map(run => unlessBroken(deps, () => runRecords.get(tx, run))))).flatMap(
        run => (run ? [[run.run, run] as const] : []),
      ),
    ),
    pool: isPoolNeeded ? await unlessBroken(deps, () => poolRecords.get(tx, deps.config.pool)) : undefined,
    spending: over.length > 0 ? await unlessBroken(deps, () => spendingRecords.get(tx)) : undefined,
    bill: await readBill(deps, tx, over),
  };
}

/** Writes the documents that differ from what was read. */
export function writeShared(tx: Transaction, before: Shared, shared: Shared, now: number): void {
  const after = addBill(tx, shared, now);
  for (const zone of after.zones.values())
    if (zone !== before.zones.get(zone.zone)) zoneRecords.set(tx, zone);
  for (const run of after.runs.values()) if (run !== before.runs.get(run.run)) runRecords.set(tx, run);
  if (after.pool && after.pool !== before.pool) poolRecords.set(tx, after.pool);
  if (after.spending && after.spending !== before.spending) spendingRecords.set(tx, after.spending);
}

/** The run that the worker works on, or lost by its silence or a failure of its machine. */
function runAtWork({work, suspect}: Worker): string | undefined {
  return parseWork(work ?? suspect?.work ?? null)?.run;
}

export function changeZone({zones}: Shared, name: string, change: (zone: Zone) => Zone): void {
  const zone = zones.get(name);
  if (zone) zones.set(name, change(zone));
}

/** Whether the brake of its zone holds a worker that has been found silent. */
export function isHeldSilent(
  {config}: Deps,
  shared: Shared,
  {before, death}: Turn,
  {heard, lost}: Hush,
  moment: Moment,
): boolean {
  const zone = shared.zones.get(before.zone);
  if (death?.kind !== 'silent' || !zone) return false;
  const {silent_s} = config.limits;
  const silent = {
    worker: before,
    heard: heard.get(zone.zone) ?? 0,
    isLost: lost.has(before.name),
    silent_s,
  };
  const {ends, brake} = decideSilence(zone.brake, silent, moment);
  changeZone(shared, zone.zone, zone => ({...zone, brake}));
  return !ends;
}

/** Whether a node may be created: probes always, others while the boots of the pool and of the zone are not stopped. */
export function grantBoot({config}: Deps, shared: Shared, name: string, now: number): boolean {
  const zone = shared.zones.get(name);
  const {pool} = shared;
  if (!zone || !pool) return false;
  const {bundle} = config;
  const isProbe = zone.brake !== null && zone.brake.probes_due > 0;
  const mayTry = mayBoot(pool.boots, bundle, now) && mayBoot(zone.boots, bundle, now);
  if (!isProbe && !mayTry) return false;
  if (isProbe)
    changeZone(shared, name, ({brake, ...zone}) => ({...zone, brake: brake && afterCreate(brake)}));
  else if (isStopped(pool.boots, bundle) || isStopped(zone.boots, bundle)) {
    shared.pool = {...pool, boots: afterTry(pool.boots, bundle, now)};
    changeZone(shared, name, zone => ({...zone, boots: afterTry(zone.boots, bundle, now)}));
  }
  return true;
}

/** Counts a node that was READY and never spoke. A node that spoke before Google repaired it says nothing about boots. */
export function countUnheard(deps: Deps, tx: Transaction, shared: Shared, worker: Worker, now: number): void {
  const {bundle} = deps.config;
  changeZone(shared, worker.zone, zone => ({...zone, brake: zone.brake && afterUnheard(zone.brake, worker)}));
  if (worker.hello_at !== null) return;
  const about = {kind: 'worker', worker: worker.name} as const;
  const advice = `one an hour is tried; deploy a bundle that works, or send {"action":"resume","pool":"${worker.pool}"}`;
  const count = <T extends Zone | Pool>(name: string, document: T): T => {
    const boots = afterUnheardBoot(document.boots, bundle, now);
    if (isStopped(boots, bundle) && !isStopped(document.boots, bundle)) {
      const text = `Creates of ${name} stop: ${boots.unheard} nodes in a row were READY and never spoke; ${advice}`;
      deps.log('ERROR', text, {worker: worker.name});
      tell(tx, {...about, text}, now);
    }
    return {...document, boots};
  };
  changeZone(shared, worker.zone, zone => count(`zone ${zone.zone}`, zone));
  if (shared.pool) shared.pool = count(`pool ${shared.pool.pool}`, shared.pool);
}

/** Counts a machine that died at work on a run, and the stream that failed for it, if any. */
export function countMachineDeath(
  tx: Transaction,
  shared: Shared,
  {before}: Turn,
  death: Death,
  stream: Stream | undefined,
  now: number,
): void {
  const run = shared.runs.get(runAtWork(before) ?? '');
  if (!run) return;
  const counted = afterMachineDeath(run, before.name, death.cause, now);
  const next = stream?.status === 'failed' ? afterMachineFailedStream(counted, stream.stream, now) : counted;
  shared.runs.set(run.run, next);
  tellPaused(tx, run, next, now);
}
