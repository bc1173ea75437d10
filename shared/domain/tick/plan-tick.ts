import {costOfLiving, downloadsOf, runAtWork} from '../billing/cost.ts';
import {fullZones} from '../fleet/slots.ts';
import {parseWork} from '../names.ts';
import {type Constraint, goesOn} from '../records/constraint.ts';
import type {Run} from '../records/run.ts';
import {hasEnded, type Worker} from '../records/worker.ts';
import type {Zone} from '../records/zone.ts';
import {afterModelPause} from '../run/model-failures.ts';
import type {RunCosts} from '../run/summarize.ts';
import {hasRunOut} from '../stream/lease.ts';
import {msOf} from '../time.ts';
import {isGoing, managedIn, missingIn, NOT_LISTED, type Tpu} from '../worker/nodes.ts';
import {type Moment, NEVER_SERVED} from '../worker/served-time.ts';
import {afterAgent} from '../zone/limiter.ts';
import {afterHellos, speakersByZone} from '../zone/silence-guard.ts';
import {silentWorkers} from './blocked-slots.ts';
import {type Budgets, decideBudgets, type Pause} from './budgets.ts';
import {type Constraints, planFleet} from './fleet-plan.ts';
import type {Gathering} from './gangs.ts';
import {decideOrphans, type OrphanCount, orphansOf} from './orphans.ts';
import {type PlanInputs, type Slot, type SlotBatches, slotOf, slotsThatChange} from './slots.ts';
import type {BudgetSnapshot, Snapshot, StreamCounts, TickConfig} from './snapshot.ts';
import {planYields, type Yield} from './yields.ts';

export type BudgetPlan = {
  pauses: readonly Pause[];
  reasons: readonly Pause[];
  retries: readonly string[];
  inputs: PlanInputs;
  deletes: SlotBatches;
};

/** If its streams do not change, the document of a run without a budget gets new costs only after they grew by this share. */
const SHARE = 0.05;
const LEAST_USD = 1;

export type RunPlan = {
  run: Run;
  counts: StreamCounts;
  costs: RunCosts;
  /** `continue`: streams or workers are left. `finish`: none is left. */
  next: 'continue' | 'finish';
  /** Why the run waits; undefined if it moves. */
  waits: Constraint | undefined;
  /** True if streams may be leased to workers that do not hold them. */
  hasOrphanedLeases: boolean;
};

export type TickPlan = {
  inputs: PlanInputs;
  deletes: SlotBatches;
  others: SlotBatches;
  /** Slots whose node the list omits. Before its decision each node is read with `get`. */
  missing: readonly Slot[];
  /** Zones, and a time for the pool, whose silence guard or stop of creates ends because workers sent their first heartbeats. */
  hellos: {zones: readonly string[]; pool_at: string | undefined};
  orphans: readonly OrphanCount[];
  strays: readonly Tpu[];
  /** Living workers that have not renewed their lease for `lease_s`. */
  expired: readonly string[];
  /** Workers whose document does not show yet that their run was paused, resumed or ended. */
  notices: readonly {run: string; workers: readonly string[]}[];
  /** Workers whose `yields_to` changes: they must give their stream back for a job, or no longer need to. */
  yields: readonly Yield[];
  runs: readonly RunPlan[];
  constraints: Constraints;
  /** Jobs whose slices have waited too long for the others, and the zones. */
  reservationTimeouts: Gathering['timeouts'];
  /** Creates and dollars of this plan, which later pools of the tick do not get. */
  taken: {creates: number; usd: number};
};

/** Plans budgets first: pauses runs over their budget and deletes their workers, whatever the lists of nodes show. */
export function planBudgets(snapshot: BudgetSnapshot, config: TickConfig, now: number): BudgetPlan {
  const budgets = decideBudgets(snapshot, config.ceilings, now, config.region);
  const inputs = inputsOf(snapshot, now);
  const slots = spentSlots(snapshot, budgets);
  return {
    pauses: budgets.pauses,
    reasons: budgets.reasons,
    retries: snapshot.runs.filter(run => afterModelPause(run, now)).map(({run}) => run),
    inputs,
    deletes: slotsThatChange(slots, inputs, config.limits, now).deletes,
  };
}

function spentSlots({workers}: BudgetSnapshot, {dismissed}: Budgets): Slot[] {
  const living = [...workers.values()].filter(worker => dismissed.has(worker.name) && !hasEnded(worker));
  return living.flatMap(({name}) => slotOf(name, 'dismissed', workers));
}

function inputsOf({read_at_ms, pool, prices, workers, creates}: BudgetSnapshot, now: number): PlanInputs {
  return {
    ...{read_at_ms, planned_at_ms: now, nodes: NOT_LISTED, pool, prices: prices ?? {}},
    ...{payers: new Map(), mostCreates: creates ?? 0, spare: new Map(), tickBill: {usd: 0}},
    ...{servedTime: NEVER_SERVED, lostWorkers: new Set(), shardsByRun: new Map()},
    ...{speakersByZone: speakersByZone(workers.values()), fullZones: fullZones(pool, workers)},
  };
}

/** Plans one pool. Slots that `planBudgets` deletes are left out. */
export function planTick(before: Snapshot, config: TickConfig, now: number): TickPlan {
  const hellos = helloChanges(before, {now, servedTime: before.servedTime});
  const snapshot = {...before, zones: hellos.zones_after};
  const {workers, unreadable, lostWorkers, servedTime, streams} = snapshot;
  const nodes = snapshot.nodes ?? NOT_LISTED;
  const budgets = decideBudgets(snapshot, config.ceilings, now, config.region);
  const orphans = orphansOf(snapshot, now);
  const isPaidFor = orphans.usd < budgets.left_usd;
  const {held, counts} = decideOrphans(nodes, orphans.names, {zones: snapshot.zones, isPaidFor}, now);
  const silent = silentWorkers(snapshot, config.limits.silent_s);
  const fleet = planFleet(snapshot, {budgets, orphans, silent}, config, now);
  const shardsByRun = new Map([...streams].map(([run, {totals}]) => [run, totals.total_shards]));
  const {payers, mostCreates, spare} = fleet;
  const known = {payers, mostCreates, spare, nodes, servedTime, lostWorkers, shardsByRun};
  const inputs = {...inputsOf(snapshot, now), ...known};
  const spent = new Set(spentSlots(snapshot, budgets).map(({name}) => name));
  const missingNames = new Set(missingIn(nodes, workers, servedTime, config.lease_s).map(nameOf));
  const slots: Slot[] = [];
  const missing: Slot[] = [];
  for (const name of new Set([...workers.keys(), ...fleet.wanted, ...managedIn(nodes)])) {
    if (unreadable.has(name) || held.has(name) || spent.has(name)) continue;
    // Another tick has created this node since the snapshot, perhaps for a run that the snapshot does not have.
    if (!fleet.wanted.has(name) && isYounger(workers.get(name), snapshot.read_at_ms)) continue;
    const isWanted = fleet.wanted.has(name) ? 'wanted' : 'unwanted';
    const slot = slotOf(name, budgets.dismissed.has(name) ? 'dismissed' : isWanted, workers);
    (missingNames.has(name) ? missing : slots).push(...slot);
  }
  return {
    inputs,
    ...slotsThatChange(slots, inputs, config.limits, now),
    missing,
    hellos,
    orphans: counts,
    strays: nodes.strays.filter(stray => !isGoing(stray)),
    expired: [...workers.values()]
      .filter(worker => hasRunOut(worker, config.lease_s, servedTime))
      .map(nameOf),
    notices: noticesFor(snapshot),
    yields: planYields(snapshot, silent, fleet.gathering.yieldingTo, now),
    runs: planRuns(snapshot, fleet.constraints, now),
    constraints: fleet.constraints,
    reservationTimeouts: fleet.gathering.timeouts,
    taken: {creates: fleet.creates, usd: fleet.reserved_usd},
  };
}

const nameOf = ({name}: Worker) => name;

function isYounger(worker: Worker | undefined, read_at_ms: number): boolean {
  return worker?.phase === 'creating' && msOf(worker.phase_since_at) > read_at_ms;
}

/** `zones_after`: zones after the first heartbeats of their workers. `zones`: names of the changed zones. */
function helloChanges({zones, workers, pool}: Snapshot, moment: Moment) {
  const byZone = Map.groupBy(workers.values(), ({zone}) => zone);
  const after = zones?.map(zone => zoneAfterHellos(zone, byZone.get(zone.zone) ?? [], moment));
  const changed = zones?.filter((zone, index) => after?.[index] !== zone) ?? [];
  const agent_at = lastAgent([...workers.values()]);
  const isPoolChanged = agent_at !== undefined && afterAgent(pool.limiter, agent_at) !== pool.limiter;
  return {
    zones_after: after,
    zones: changed.map(({zone}) => zone),
    pool_at: isPoolChanged ? agent_at : undefined,
  };
}

export function zoneAfterHellos(zone: Zone, workers: readonly Worker[], moment: Moment): Zone {
  const agent_at = lastAgent(workers);
  const silence_guard = zone.silence_guard && afterHellos(zone.silence_guard, workers, moment);
  const limiter = agent_at === undefined ? zone.limiter : afterAgent(zone.limiter, agent_at);
  return silence_guard === zone.silence_guard && limiter === zone.limiter
    ? zone
    : {...zone, silence_guard, limiter};
}

function lastAgent(workers: readonly Worker[]): string | undefined {
  return workers
    .flatMap(({agent_at}) => agent_at ?? [])
    .sort()
    .at(-1);
}

function noticesFor({runs, unreadable_runs, workers}: Snapshot): TickPlan['notices'] {
  const status = new Map(runs.map(run => [run.run, run.status]));
  const unnotified = [...workers.values()].flatMap(({name, work, drains}) => {
    const run = parseWork(work)?.run;
    if (run === undefined || unreadable_runs.has(run)) return [];
    const isNotified = status.has(run) && drains === (status.get(run) === 'paused');
    return isNotified ? [] : {run, name};
  });
  const byRun = Map.groupBy(unnotified, ({run}) => run);
  return [...byRun].map(([run, found]) => ({run, workers: found.map(({name}) => name)}));
}

function planRuns({runs, workers, streams}: Snapshot, {work}: Constraints, now: number): RunPlan[] {
  const living = costOfLiving(workers.values(), now);
  const atWork = new Map<string, number>();
  for (const worker of workers.values()) {
    const run = parseWork(worker.work)?.run;
    if (run) atWork.set(run, (atWork.get(run) ?? 0) + 1);
  }
  return runs.flatMap(run => {
    const counts = streams.get(run.run);
    if (!counts) return [];
    const holders = atWork.get(run.run) ?? 0;
    const {streams_in_progress, streams_failed} = counts.totals;
    // A paused run with a failed stream waits for an operator, so no tick reads all its streams.
    const staysOpen = run.status === 'paused' && counts.unfinished === 0 && streams_failed > 0;
    const isOver = holders === 0 && counts.areAllOver && !staysOpen;
    const costs = {
      cost_usd: run.spent_usd + (living.runs.get(run.run) ?? 0),
      download_usd: run.spent_download_usd + (living.runs.get(downloadsOf(run.run)) ?? 0),
    };
    const waits = work.get(run.run);
    if (counts.counted_ms === null && !hasGrown(run, costs) && !hasOtherWait(run, waits, now)) return [];
    return {
      run,
      counts,
      costs,
      next: isOver ? ('finish' as const) : ('continue' as const),
      waits,
      // Leases change while they are counted: with many workers, a few more leases than workers prove nothing.
      hasOrphanedLeases: streams_in_progress - holders > holders / 100,
    };
  });
}

/** True if the costs have grown enough to be written to the document, whose budget limits each grant. */
function hasGrown({budget_usd, ...known}: Run, {cost_usd, download_usd}: RunCosts): boolean {
  const grown_usd = Math.max(cost_usd - known.cost_usd, download_usd - known.download_usd);
  return grown_usd > (budget_usd === null ? Math.max(LEAST_USD, SHARE * known.cost_usd) : 0);
}

/** True if the document shows another reason or next try of the wait. Of many runs only the first in line waits for a zone. */
function hasOtherWait({status, waits}: Run, now_is: Constraint | undefined, now: number): boolean {
  return status === 'active' && goesOn(waits, now_is, now) !== waits;
}

export function otherRunsAtWork(workers: Iterable<Worker>, runs: readonly Run[]): string[] {
  const named = new Set([...workers].flatMap(worker => runAtWork(worker) ?? []));
  for (const {run} of runs) named.delete(run);
  return [...named];
}
