/** Serves the work of a pool in order: each payer gets its TPUs, and the first refusal of a payer is the reason why its work waits. */
import {isHeld, isSpare, payerOfWork, type ReserveBudget} from '../billing/cost.ts';
import type {Constraint} from '../records/constraint.ts';
import type {Worker, Workers} from '../records/worker.ts';
import {type Fleet, factsOf, whyWaiting} from './why-waiting.ts';
import type {Demand, Work} from './work.ts';

/** `payers`: of each empty slot that gets a node, and of each idle worker that gets another payer. Null: no budget pays for the slot. */
export type Served = {payers: Map<string, string | null>; waits: Map<string, Constraint>};

export function serveWork({demands}: Pick<Work, 'demands'>, fleet: Fleet, reserve: ReserveBudget): Served {
  const {workers} = fleet.snapshot;
  const line = newLine(demands, workers);
  const free = [...fleet.wanted].filter(name => isFree(name, workers, line));
  const payers: Served['payers'] = new Map();
  const waits: Served['waits'] = new Map();
  const facts = factsOf(fleet, payers);
  let ahead: Demand | undefined;
  for (const demand of demands) {
    const {taken, refusal} = takeSlots(demand, free, payers, line, reserve);
    const own = (line.spare.get(demand.payer) ?? []).filter(({name}) => !payers.get(name));
    const slots = [...own.map(({name}) => name), ...taken];
    const why = demand.own ?? whyWaiting(demand, {slots, refusal, ahead}, facts);
    if (why) waits.set(demand.payer, why);
    const isServed = demand.open > 0 || demand.bound.length > 0;
    if (isServed && demand.waiting > slots.length) ahead ??= demand;
  }
  payRest(demands, free, payers, workers, line, reserve);
  return {payers, waits};
}

/**
 * `unserved`: work of each payer beyond its TPUs. `spare`: workers without work, by payer. `staying`: those of them that their payer needs.
 * `boundTo`: payer of each bound slot.
 */
type Line = {
  unserved: Map<string, number>;
  spare: ReadonlyMap<string, Worker[]>;
  staying: ReadonlySet<string>;
  boundTo: ReadonlyMap<string, string>;
};

function newLine(demands: readonly Demand[], workers: Workers): Line {
  const unserved = new Map(demands.map(({payer, open}) => [payer, open]));
  const pairs = demands.flatMap(({payer, bound}) => bound.map(slot => [slot, payer] as const));
  const boundTo = new Map(pairs.reverse());
  const staying = new Set<string>();
  const take = (payer: string) => unserved.set(payer, (unserved.get(payer) ?? 0) - 1);
  const living = [...workers.values()].filter(({phase}) => phase !== 'gone');
  for (const {work} of living) if (work !== null) take(payerOfWork(work) ?? '');
  const spare = Map.groupBy(living.filter(isSpare), ({charged_to}) => charged_to ?? '');
  for (const [payer, workers] of spare)
    for (const worker of workers) {
      if (!isHeld(worker) && boundTo.get(worker.name) !== payer && (unserved.get(payer) ?? 0) <= 0) continue;
      take(payer);
      staying.add(worker.name);
    }
  return {unserved, spare, staying, boundTo};
}

/** True for an empty slot, and for a worker without work that its payer does not need. */
function isFree(name: string, workers: Workers, {staying}: Line): boolean {
  const worker = workers.get(name);
  if (worker === undefined || worker.phase === 'gone') return true;
  return isSpare(worker) && !staying.has(name);
}

/** Gives slots to a payer: those that are bound to it, and one for each other stream or job. Returns its first refusal. */
function takeSlots(
  {payer}: Demand,
  free: readonly string[],
  payers: Served['payers'],
  {unserved, boundTo}: Line,
  reserve: ReserveBudget,
): {taken: string[]; refusal: Constraint | undefined} {
  const taken: string[] = [];
  let first: Constraint | undefined;
  for (const name of free) {
    const left = unserved.get(payer) ?? 0;
    const owner = boundTo.get(name);
    const isDue = owner === undefined ? left > 0 : owner === payer;
    if (!isDue || (payers.get(name) ?? null) !== null) continue;
    const refusal = reserve(payer, name);
    payers.set(name, refusal ? null : payer);
    if (refusal) first ??= refusal;
    else {
      taken.push(name);
      unserved.set(payer, left - 1);
    }
  }
  return {taken, refusal: first};
}

/** A bound slot may serve another run first; then more workers are wanted than payers need, and the first payer pays for the rest. */
function payRest(
  demands: readonly Demand[],
  free: readonly string[],
  payers: Served['payers'],
  workers: Workers,
  {boundTo}: Line,
  reserve: ReserveBudget,
): void {
  const open = demands.filter(demand => demand.open > 0).map(({payer}) => payer);
  const [first] = open;
  for (const name of free) {
    const worker = workers.get(name);
    const isPaid = worker && worker.phase !== 'gone' && open.includes(worker.charged_to ?? '');
    if (first === undefined || payers.has(name) || boundTo.has(name) || isPaid) continue;
    payers.set(name, reserve(first, name) ? null : first);
  }
}
