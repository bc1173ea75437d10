/** Plan of the fleet within zones, silence guards, ceilings and budgets: slots that should have a node, the payer of each, and why work waits. */
import {priceOf} from '../billing/budget.ts';
import {costOfDeleting} from '../billing/cost.ts';
import {isEmptySlot, isOpenSlot, livingAmong, slotsOf, wantedSlots} from '../fleet/slots.ts';
import {parseWorkerName} from '../names.ts';
import type {Constraint} from '../records/constraint.ts';
import {stateOf} from '../zone/limiter.ts';
import {
  blockedSlots,
  createStop,
  createsPerZone,
  type Decided,
  workersOfUnreadableRuns,
} from './blocked-slots.ts';
import type {Gathering} from './gangs.ts';
import type {Orphans} from './orphans.ts';
import {serveWork} from './serve-work.ts';
import type {Snapshot, TickConfig} from './snapshot.ts';
import {type Fleet, zoneWaits} from './why-waiting.ts';
import {type Work, workOf} from './work.ts';

/** `work`: by run, and by `JOBS`; work without a constraint moves. `zones`: only for slots that their zone does not fill. */
export type Constraints = {work: ReadonlyMap<string, Constraint>; zones: ReadonlyMap<string, Constraint>};

export type FleetPlan = {
  wanted: ReadonlySet<string>;
  /** The run that pays for each new or idle node. */
  payers: ReadonlyMap<string, string | null>;
  /** Limit of the count of all creates, including those of this plan, because another tick may create nodes at the same time. */
  mostCreates: number;
  /** Creates of this plan, and the dollars reserved for them: pools planned later in the tick share the rest. */
  creates: number;
  reserved_usd: number;
  /** Dollars left in the budgets of each payer beside these creates. */
  spare: ReadonlyMap<string, number>;
  constraints: Constraints;
  gathering: Gathering;
};

export function planFleet(snapshot: Snapshot, decided: Decided, config: TickConfig, now: number): FleetPlan {
  const {pool, workers} = snapshot;
  const {budgets, orphans, silent} = decided;
  const work = workOf(snapshot, decided, config, now);
  const most = mostNodes(snapshot, orphans, config);
  const slots = work.unread ? NO_SLOTS : chooseSlots(snapshot, decided, work, most, config, now);
  const fleet: Fleet = {snapshot, silent, now, ...slots};
  const {payers, waits} = serveWork(work, fleet, budgets.newReserver(orphans.usd));
  const constraints = {work: waits, zones: waits.size > 0 ? zoneWaits(fleet) : new Map()};
  const living = [...workers.values()].filter(({phase}) => phase !== 'gone').map(({name}) => name);
  const unpaid = new Set([...payers].flatMap(([name, payer]) => (payer === null ? name : [])));
  const kept = work.unread ? living : workersOfUnreadableRuns(snapshot);
  const wanted = new Set([...[...slots.wanted].filter(name => !unpaid.has(name)), ...kept]);
  const plan = {wanted, payers, constraints, gathering: work.gathering};
  const created = [...wanted].filter(name => isEmptySlot(workers.get(name)));
  const costOf = (names: readonly string[]) =>
    names.reduce((sum, name) => {
      const usd = priceOf(snapshot.prices ?? {}, pool, parseWorkerName(name)?.zone ?? '');
      return sum + costOfDeleting(usd ?? 0);
    }, 0);
  const reserved_usd = costOf(created);
  const left_usd = budgets.left_usd - orphans.usd - reserved_usd;
  const byPayer = Map.groupBy(created, name => payers.get(name) ?? '');
  const spare = new Map(
    [...byPayer].map(([payer, names]) => [payer, Math.min(left_usd, budgets.leftOf(payer) - costOf(names))]),
  );
  const before = snapshot.creates ?? 0;
  const room = most - livingAmong(workers);
  // A budget pays only for the creates of this plan: creates of another tick replace them.
  const allowed = isBounded(snapshot, config) ? Math.min(room, created.length) : room;
  const mostCreates = work.unread ? before : createStop(snapshot, now) ? 0 : before + allowed;
  return {...plan, mostCreates, creates: created.length, reserved_usd, spare};
}

const NO_SLOTS: Pick<Fleet, 'wanted' | 'withheld' | 'limits'> = {
  wanted: new Set(),
  withheld: new Map(),
  limits: new Map(),
};

/** The nodes that the deployment allows the pool, after those of other pools and nodes without a readable document. */
function mostNodes({unreadable, others}: Snapshot, orphans: Orphans, {ceilings}: TickConfig): number {
  const elsewhere = others.workers.filter(({phase}) => phase !== 'gone').length + others.nodes;
  return ceilings.max_workers - unreadable.size - orphans.names.length - elsewhere;
}

function isBounded({pool, runs}: Snapshot, {ceilings}: TickConfig): boolean {
  return ceilings.max_budget_usd !== null || [pool, ...runs].some(({budget_usd}) => budget_usd !== null);
}

/** The slots that the work needs and that its zones allow. */
function chooseSlots(
  snapshot: Snapshot,
  decided: Decided,
  {demands, gathering}: Work,
  most: number,
  config: TickConfig,
  now: number,
) {
  const {pool, workers, zones = []} = snapshot;
  const blocked = blockedSlots(snapshot, decided, gathering, config, now);
  const isFree = ({name}: {name: string}) => !blocked.has(name) && isOpenSlot(workers.get(name), now);
  const free = new Set(slotsOf(pool).flatMap(slot => (isFree(slot) ? slot.zone : [])));
  const limits = createsPerZone(snapshot, zone => free.has(zone), config, now);
  const limited = zones.filter(({limiter}) => stateOf(limiter, config.bundle) !== 'open');
  const open = demands.reduce((sum, demand) => sum + demand.open, 0);
  const {wanted, withheld} = wantedSlots(pool, workers, open, now, {
    ...{blocked, allowances: limits, most, silent: decided.silent},
    bound: new Set(demands.flatMap(({bound}) => bound)),
    canaries: new Map(zones.map(({zone, silence_guard}) => [zone, silence_guard?.canaries_due ?? 0])),
    limited: new Set(limited.map(({zone}) => zone)),
  });
  return {wanted, withheld, limits};
}
