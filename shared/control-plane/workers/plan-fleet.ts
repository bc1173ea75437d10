/** The fleet: which slots should have a TPU, and every node of ours that no document knows. */

import {payersFor, runAtWork} from '../../domain/billing/cost.ts';
import {isStopped, mayBoot, nextToTry} from '../../domain/fleet/breakers.ts';
import {allowance, type Zone} from '../../domain/fleet/placement.ts';
import {isOpenSlot, livingAmong, type Pool, slotsOf, wantedSlots} from '../../domain/fleet/pool.ts';
import {heardByZone} from '../../domain/fleet/silence-brake.ts';
import {paths} from '../../domain/names.ts';
import type {Run} from '../../domain/run/run.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import {isOlderThan} from '../../domain/time.ts';
import {isServedFor, NEVER_SERVED, type Served} from '../../domain/worker/served-time.ts';
import {hasEnded, isAlive, type Worker} from '../../domain/worker/worker.ts';
import type {Filter, Tpu} from '../../ports.ts';
import {openRuns, whatIsLeft} from '../runs/open-runs.ts';
import {abreast} from '../state/concurrency.ts';
import type {Deps} from '../state/deps.ts';
import {createsRecords, servedRecord, workerRecords, zoneRecords} from '../state/documents.ts';
import {tellAlone} from '../state/event-log.ts';
import {Failures} from '../state/failures.ts';
import {keepOrdersOf} from '../state/orders.ts';
import {knownPool} from '../state/pools.ts';
import {type Accounts, holdTheSpent, readPrices, spentThisMonth} from './budget.ts';
import {costOfOrphans, heldOrphans, orphansIn} from './orphans.ts';
import {type Look, lookAtNodes, lookForMissing, managed, missingIn, NOT_LOOKED} from './provider-snapshot.ts';
import {countFreed, lookAtSlots, type Slot, slotOf} from './reconcile-workers.ts';
import {findLost, heedHellos, proveService, reportHeld} from './served-time.ts';

/** The workers that are not gone. */
export const LIVING: Filter = {
  field: 'phase',
  op: 'in',
  value: ['creating', 'booting', 'idle', 'working', 'draining', 'deleting'],
};

/** A fleet of more workers than this waits for the tick: reading it for every stream that is dropped costs more than a minute. */
const MOST_AT_ONCE = 32;

/** After work came in: asks for the TPUs it wants without waiting for the tick, and concludes nothing about any other. */
export async function lookForWork(deps: Deps): Promise<void> {
  if ((await deps.store.count('workers', [LIVING])) > MOST_AT_ONCE) return;
  const failures = new Failures(deps);
  const fleet = await readFleet(deps);
  const budgets = await applyBudgets(deps, fleet, failures);
  const first = await planSlots(deps, fleet, budgets, failures);
  const isNew = [...first.wanted].some(name => !fleet.workers.has(name));
  // A slot without a document may have a node all the same, if the Store was lost.
  const look = isNew ? await lookAtNodes(deps) : undefined;
  const plan = look ? await planSlots(deps, fleet, budgets, failures, {look}) : first;
  const isEmpty = (name: string) => (plan.workers.get(name)?.phase ?? 'gone') === 'gone';
  const slots = [...plan.wanted].filter(isEmpty).flatMap(name => slotOf(name, 'wanted', plan.workers));
  const {freed} = await lookAtSlots(deps, NOT_LOOKED, slots, plan, failures);
  await countFreed(deps, freed, failures);
  await failures.isolate('keep the orders of paused runs', () => keepOrdersOf(deps, plan.held));
  failures.rethrow();
}

/**
 * The workers as documents say, what they cost, and the slots whose document cannot be read. `creates`: how many nodes were ever asked
 * for just before.
 */
export type Fleet = Accounts & {broken: ReadonlySet<string>; creates: number};

export async function readFleet(deps: Deps): Promise<Fleet> {
  const {spent_usd} = await knownPool(deps);
  const month = await spentThisMonth(deps);
  const {creates} = await createsRecords.read(deps, deps.store);
  const runs = await openRuns(deps);
  const broken = new Set<string>();
  const parsed = workerRecords.parseAll(await deps.store.query('workers'), (error, name) => {
    broken.add(name);
    deps.log('ERROR', error.message);
  });
  return {
    workers: new Map(parsed.map(worker => [worker.name, worker])),
    broken,
    creates,
    runs,
    spent_usd,
    month,
  };
}

/**
 * Decides about every slot that has a worker or should have one; busy while any is not gone. `held`: see `holdTheSpent`. Workers that
 * no budget pays for go before the list of nodes is there, and those that the list leaves out are decided about last, because each is
 * asked for.
 */
export async function lookAtWorkers(
  deps: Deps,
  listing: Promise<Look | undefined>,
  fleet: Fleet,
  failures: Failures,
): Promise<{busy: boolean; held: string[]; served: Served}> {
  const {workers, broken} = fleet;
  const budgets = await applyBudgets(deps, fleet, failures);
  const spent = await dismiss(deps, fleet, budgets, failures);
  const look = (await listing) ?? NOT_LOOKED;
  const served =
    (await failures.isolate('prove that worker-api works', () => proveService(deps, workers))) ??
    NEVER_SERVED;
  const moment = {now: deps.now(), served};
  const zones = await failures.isolate('read the zones', () => readZones(deps));
  await failures.isolate('hear first words', () => heedHellos(deps, zones ?? [], workers, moment));
  const plan = await planSlots(deps, fleet, budgets, failures, {look, served, ...(zones ? {zones} : {})});
  const {wanted, dismissed, held} = plan;
  const found = await failures.isolate('find orphans', () =>
    heldOrphans(deps, look, fleet, {...budgets, zones: plan.zones}),
  );
  const orphans = found ?? new Set(orphansIn(look, workers));
  const slots: Slot[] = [];
  for (const name of new Set([...workers.keys(), ...wanted, ...managed(look.tpus)])) {
    if (broken.has(name) || orphans.has(name) || spent.names.has(name)) continue;
    const need = dismissed.has(name) ? 'dismissed' : wanted.has(name) ? 'wanted' : 'unwanted';
    slots.push(...slotOf(name, need, workers));
  }
  const lost = await findLost(deps, workers, moment, failures);
  const stored = await failures.isolate('count the shards of runs', () => shardsOf(deps, fleet.runs));
  const all = {...plan, lost, ...(stored ? {stored} : {})};
  const missing = missingIn(deps, look, workers, moment);
  const names = new Set(missing.map(({name}) => name));
  const decided = await lookAtSlots(
    deps,
    look,
    slots.filter(({name}) => !names.has(name)),
    all,
    failures,
  );
  const seen = await lookForMissing(deps, look, missing);
  const last = await lookAtSlots(
    deps,
    seen,
    slots.filter(({name}) => names.has(name)),
    all,
    failures,
  );
  await countFreed(deps, [...spent.freed, ...decided.freed, ...last.freed], failures);
  const areStraysLeft = await sweepStrays(deps, look);
  const silent = [...decided.held, ...last.held];
  await failures.isolate('report held workers', () => reportHeld(deps, zones ?? [], silent));
  const isAnyMarked = plan.zones.some(zone => zone.orphans !== null);
  const isAnyHeld = orphans.size > 0 || isAnyMarked || [...broken].some(name => look.tpus.has(name));
  const busy = decided.busy || last.busy || spent.names.size > 0 || areStraysLeft || isAnyHeld;
  return {busy, held, served};
}

/** Budgets as applied to the runs: see `holdTheSpent`. */
type Budgets = Awaited<ReturnType<typeof applyBudgets>>;

async function applyBudgets(deps: Deps, fleet: Fleet, failures: Failures) {
  const pool = await knownPool(deps);
  const prices = await readPrices(deps, pool);
  return {pool, prices, ...(await holdTheSpent(deps, pool, prices, fleet, failures))};
}

/** Tells the workers that no budget pays for to go, and answers their names. Nothing that Cloud TPU shows of them could keep them. */
async function dismiss(
  deps: Deps,
  fleet: Fleet,
  budgets: Budgets,
  failures: Failures,
): Promise<{names: ReadonlySet<string>; freed: Stream[]}> {
  const {workers} = fleet;
  const living = [...workers.values()].filter(
    worker => budgets.dismissed.has(worker.name) && !hasEnded(worker),
  );
  const slots = living.flatMap(({name}) => slotOf(name, 'dismissed', workers));
  const plan = {...newPlan(deps, fleet, budgets), zones: [], payers: new Map()};
  const {freed} = await lookAtSlots(deps, NOT_LOOKED, slots, plan, failures);
  return {names: new Set(slots.map(({name}) => name)), freed};
}

/** The shards of each run on which machines died since it was resumed. */
async function shardsOf(deps: Deps, runs: readonly Run[]): Promise<Map<string, number>> {
  const stored = new Map<string, number>();
  const dying = runs.filter(({machine_deaths}) => machine_deaths > 0);
  await abreast(dying, async ({run}) => {
    const {total_shards} = await deps.store.sum(paths.streams(run), ['total_shards']);
    stored.set(run, total_shards);
  });
  return stored;
}

/** Deletes every node of ours without a document, however many there are: a person said so. */
export async function deleteOrphans(deps: Deps, look: Look, fleet: Fleet): Promise<void> {
  const failures = new Failures(deps);
  const plan = await planSlots(deps, fleet, await applyBudgets(deps, fleet, failures), failures, {look});
  const names = orphansIn(look, fleet.workers).filter(name => !fleet.broken.has(name));
  const slots = names.flatMap(name => slotOf(name, 'unwanted', fleet.workers));
  const {freed} = await lookAtSlots(deps, look, slots, plan, failures);
  await countFreed(deps, freed, failures);
  failures.rethrow();
}

/** Deletes what has our label and no slot's name and zone: it can get no work, and costs. True while any is there. */
async function sweepStrays(deps: Deps, {strays}: Look): Promise<boolean> {
  const isGoing = ({state, queued}: Tpu) => (state ?? queued?.state) === 'DELETING';
  await abreast(
    strays.filter(stray => !isGoing(stray)),
    async ({name, zone}) => {
      const text = `${name} in ${zone} has our label, and no slot has its name there: deleting it`;
      try {
        await deps.tpus.delete(name, zone);
        await tellAlone(deps, {kind: 'worker', worker: name, text});
      } catch (error) {
        deps.log('ERROR', `${text}: ${(error as Error).message}`);
      }
    },
  );
  return strays.length > 0;
}

/** What a tick has read before it plans; an event reads zones and served time itself, and no list. */
type Known = {look?: Look; zones?: readonly Zone[]; served?: Served};

/**
 * The slots that should have a TPU, and those that must not keep theirs another minute. The streams are counted after the
 * workers were read, so that each worker that is there for a stream finds it counted.
 */
async function planSlots(deps: Deps, fleet: Fleet, budgets: Budgets, failures: Failures, known: Known = {}) {
  const {workers, broken, runs} = fleet;
  const {pool, dismissed, newPurse} = budgets;
  const served = known.served ?? (await servedRecord.read(deps, deps.store));
  const base = {...newPlan(deps, fleet, budgets), served};
  const counted = await failures.isolate('count the work that is left', async () => {
    const zones = known.zones ?? (await readZones(deps));
    return {zones, ...(await whatIsLeft(deps, pool))};
  });
  // Without the count no TPU is asked for, and none goes because it has no work.
  if (!counted) {
    const zones = known.zones ?? [];
    return {...base, zones, wanted: livingOf(workers), payers: new Map<string, string | null>()};
  }
  const {open, fixed, zones} = counted;
  const {look} = known;
  const now = deps.now();
  const streams = open.reduce((sum, {streams}) => sum + streams, 0);
  const orphans = look ? orphansIn(look, workers) : [];
  const hidden = look ? hiddenSlots(deps, pool, workers, {look, zones}, now) : [];
  const vain = silentInVain(deps, workers, runs, served);
  const out = new Set([...broken, ...dismissed, ...orphans, ...hidden, ...vain]);
  const isFree = ({name}: {name: string}) => !out.has(name) && isOpenSlot(workers.get(name), now);
  const free = new Set(slotsOf(pool).flatMap(slot => (isFree(slot) ? slot.zone : [])));
  const allowances = createsIn(deps, pool, zones, zone => free.has(zone), now);
  const most = deps.config.ceilings.max_workers - broken.size - orphans.length;
  const probes = new Map(zones.map(({zone, brake}) => [zone, brake?.probes_due ?? 0]));
  const wanted = wantedSlots(pool, workers, streams, now, {broken: out, allowances, fixed, most, probes});
  const payers = payersFor(
    wanted,
    workers,
    open,
    fixed,
    newPurse(costOfOrphans(budgets, look ?? NOT_LOOKED, orphans, now)),
  );
  for (const [name, run] of payers) if (run === null) wanted.delete(name);
  const room = most - livingAmong(workers);
  const isBudgeted = [pool, ...runs].some(({budget_usd}) => budget_usd !== null);
  const isBounded = isBudgeted || deps.config.ceilings.max_budget_usd !== null;
  // Budgets pay for the nodes of this plan alone: nodes that another tick asks for come out of them.
  const creates = [...wanted].filter(name => (workers.get(name)?.phase ?? 'gone') === 'gone').length;
  const mostCreates = fleet.creates + (isBounded ? Math.min(room, creates) : room);
  return {...base, zones, mostCreates, wanted, payers};
}

/** A plan of this moment that asks for no node. */
function newPlan(deps: Deps, fleet: Fleet, {pool, prices, dismissed, held}: Budgets) {
  const {workers} = fleet;
  return {
    ...{made_at_ms: deps.now(), mostCreates: fleet.creates, workers, dismissed, held, pool, prices},
    served: NEVER_SERVED,
    heard: heardByZone(workers.values()),
    lost: new Set<string>() as ReadonlySet<string>,
    stored: new Map<string, number>() as ReadonlyMap<string, number>,
  };
}

/** Workers whose run has ended or is paused and that were silent for as long as a drain may take: no brake keeps them. */
function silentInVain(
  {config}: Deps,
  workers: ReadonlyMap<string, Worker>,
  runs: readonly Run[],
  served: Served,
): string[] {
  const active = new Set(runs.filter(({status}) => status === 'active').map(({run}) => run));
  return [...workers.values()].flatMap(worker => {
    const isSilent = isAlive(worker) && worker.suspect !== null;
    const isLate = isServedFor(served, worker.heartbeat_at, config.limits.drain_s);
    return isSilent && isLate && !active.has(runAtWork(worker) ?? '') ? worker.name : [];
  });
}

async function readZones(deps: Deps): Promise<Zone[]> {
  return zoneRecords.parseAll(await deps.store.query('zones'), error => deps.log('ERROR', error.message));
}

/** How many nodes each zone may be asked for now, by what it refused and lost, and by the stops of creates. */
function createsIn(
  {config}: Deps,
  pool: Pool,
  zones: readonly Zone[],
  hasFreeSlot: (zone: string) => boolean,
  now: number,
): Map<string, number> {
  const {bundle} = config;
  const isPoolStopped = isStopped(pool.boots, bundle);
  const allowed = new Map(zones.map(zone => [zone.zone, allowance(zone, config.placement, now)]));
  const open = zones.filter(({zone}) => (allowed.get(zone) ?? 0) > 0 && hasFreeSlot(zone));
  const next = mayBoot(pool.boots, bundle, now) ? nextToTry(open, bundle, now) : undefined;
  for (const {zone, boots, brake} of zones) {
    if (!isPoolStopped && !isStopped(boots, bundle)) continue;
    const isTurn = isPoolStopped ? zone === next : mayBoot(boots, bundle, now);
    allowed.set(zone, Math.min(allowed.get(zone) ?? 0, (brake?.probes_due ?? 0) + (isTurn ? 1 : 0)));
  }
  return allowed;
}

function livingOf(workers: ReadonlyMap<string, Worker>): Set<string> {
  return new Set([...workers.values()].filter(({phase}) => phase !== 'gone').map(({name}) => name));
}

/**
 * A slot that no document knows may have a node where nobody could look: it is not asked for before somebody has. In a zone that does
 * not answer, an empty slot and one that nothing has come of for a while do not keep the work from another zone.
 */
function hiddenSlots(
  {config}: Deps,
  pool: Pool,
  workers: ReadonlyMap<string, Worker>,
  {look, zones}: {look: Look; zones: readonly Zone[]},
  now: number,
): string[] {
  const isHopeless = (worker: Worker) => {
    if (hasEnded(worker)) return true;
    const {phase, provider_state, queue_state, asked_at} = worker;
    const isUnseen = provider_state === null && queue_state === null;
    return phase === 'creating' && isUnseen && isOlderThan(asked_at, config.limits.ask_again_s, now);
  };
  // A list may leave an orphan out: where there are many, no slot without a document is known to be empty.
  const marked = new Set(zones.flatMap(({zone, orphans}) => (orphans ? zone : [])));
  const isHidden = (name: string, zone: string) => {
    const worker = workers.get(name);
    if (!worker) return look === NOT_LOOKED || look.unreachable.includes(zone) || marked.has(zone);
    return look.unreachable.includes(zone) && isHopeless(worker);
  };
  return slotsOf(pool).flatMap(({name, zone}) => (isHidden(name, zone) ? name : []));
}
