/** Slots of a tick, and the decision about each: first from the snapshot, then again from the documents of a transaction. */
import {atPrice, priceOf} from '../billing/budget.ts';
import {payerText, pricedAt, withPayer} from '../billing/cost.ts';
import type {Prices} from '../billing/prices.ts';
import {type Slot as Place, parseWorkerName} from '../names.ts';
import type {Pool} from '../records/pool.ts';
import {withSourceVersion} from '../records/source.ts';
import {hasEnded, newWorker, type Worker, type Workers} from '../records/worker.ts';
import {msOf} from '../time.ts';
import {decideWorker, type Silence, type Wanted} from '../worker/lifecycle.ts';
import type {Limits} from '../worker/limits.ts';
import {type Nodes, observe} from '../worker/nodes.ts';
import type {Served} from '../worker/served-time.ts';
import type {WorkerAction, WorkerDecision} from '../worker/transitions.ts';
import type {Verdict} from '../zone/silence-guard.ts';
import {type Change, changeOf} from '../zone/zone-changes.ts';

export type Slot = {name: string; place: Place; wanted: Wanted; seen: Worker | undefined};

/** Facts of the snapshot that every decision about a slot needs. Budgets and streams may have changed since `read_at_ms`. */
export type PlanInputs = {
  read_at_ms: number;
  planned_at_ms: number;
  nodes: Nodes;
  pool: Pool;
  prices: Prices;
  payers: ReadonlyMap<string, string | null>;
  mostCreates: number;
  /** Dollars left in the budgets of each payer beside the creates of the plan. */
  spare: ReadonlyMap<string, number>;
  /** Dollars that this tick adds to the bill of the pool. The plan has already counted them as the cost of living TPUs. */
  tickBill: {usd: number};
  servedTime: Served;
  /** Workers of each zone that have sent a heartbeat. */
  speakersByZone: ReadonlyMap<string, number>;
  fullZones: ReadonlySet<string>;
  /** Workers that have been silent, without a new shard, for longer than any silence guard holds them. */
  lostWorkers: ReadonlySet<string>;
  shardsByRun: ReadonlyMap<string, number>;
};

/** Batches of slots, keyed by the document that their decisions share: a zone or the bills. The slots of a batch share transactions. */
export type SlotBatches = ReadonlyMap<string, readonly Slot[]>;

/** Decision about a slot whose document changes. `verdict`: what the silence guard of the zone decides about a silent worker. */
export type SlotDecision = WorkerDecision & {
  slot: Slot;
  before: Worker;
  change: Change | undefined;
  verdict?: Verdict | undefined;
};

export function slotOf(name: string, wanted: Wanted, workers: Workers): Slot[] {
  const place = parseWorkerName(name);
  return place ? [{name, place, wanted, seen: workers.get(name)}] : [];
}

export function decideSlot(
  {name, place, wanted}: Slot,
  before: Worker,
  inputs: PlanInputs,
  limits: Limits,
  now: number,
  silence: Silence,
): WorkerDecision {
  const moment = {now, servedTime: inputs.servedTime};
  // An incarnation that ends now is billed at the present price.
  const current = atPrice(before, inputs.prices, inputs.pool, now);
  const decision = decideWorker(current, observe(inputs.nodes, before), wanted, limits, moment, silence);
  const priced = pricedAt(decision.worker, () => priceOf(inputs.prices, inputs.pool, place.zone));
  const paid = withPayer(priced, inputs.payers.get(name) ?? null);
  const worker = hasEnded(paid) ? paid : withSourceVersion(paid, inputs.pool);
  if (worker === decision.worker && current === before) return decision;
  const events = [...decision.events];
  if (priced !== decision.worker)
    events.push(`The price of ${name} is known now: $${priced.usd_per_hour} an hour`);
  if (current !== before)
    events.push(`${name} costs $${current.usd_per_hour} an hour now, and cost $${before.usd_per_hour}`);
  if (paid !== priced)
    events.push(
      `${payerText(worker.charged_to)} pays for ${name} now, and ${payerText(before.charged_to)} no longer does`,
    );
  return {...decision, worker, events};
}

/** Slots whose decision changes a document, in two batches: deletes, and all others. */
export function slotsThatChange(slots: readonly Slot[], inputs: PlanInputs, limits: Limits, now: number) {
  const [deletes, others] = [new Map<string, Slot[]>(), new Map<string, Slot[]>()];
  for (const slot of slots) {
    const before = slot.seen ?? newWorker(slot.name, slot.place, now);
    const decision = decideSlot(slot, before, inputs, limits, now, 'ends');
    if (decision.worker === before) continue;
    const batches = decision.actions.some(({kind}) => kind === 'delete') ? deletes : others;
    const shared = sharedBy(before, decision) ?? slot.name;
    batches.set(shared, [...(batches.get(shared) ?? []), slot]);
  }
  return {deletes, others};
}

/** The document that the decision changes besides its worker: a zone, or the bills of pool and runs. */
function sharedBy(before: Worker, decision: WorkerDecision): string | undefined {
  if (becomesGone(before, decision.worker)) return 'bills';
  return changeOf(before, decision) && before.zone;
}

/** True if the node of the incarnation is gone with this decision, so its bill is due. */
export function becomesGone(before: Worker, after: Worker): boolean {
  return after.phase === 'gone' && before.phase !== 'gone';
}

/**
 * True if the plan still applies to the slot. An unwanted worker whose phase has changed waits for the next tick. A dismissed incarnation is
 * deleted in any phase. A worker that has sent a heartbeat after Cloud TPU found no node for it is not absent.
 */
export function isStillPlanned({name, wanted, seen}: Slot, worker: Worker, {nodes}: PlanInputs): boolean {
  if (nodes.absent.has(name) && worker.heartbeat_at !== (seen?.heartbeat_at ?? null)) return false;
  if (wanted === 'wanted' || worker.phase === (seen?.phase ?? 'gone')) return true;
  return wanted === 'dismissed' && worker.incarnation === seen?.incarnation;
}

/** Decides about the slots to which the plan still applies. Slots without a change get no decision. */
export function changedSlots(
  slots: readonly {slot: Slot; worker: Worker}[],
  inputs: PlanInputs,
  limits: Limits,
  now: number,
): SlotDecision[] {
  return slots
    .filter(({slot, worker}) => isStillPlanned(slot, worker, inputs))
    .flatMap(({slot, worker}) => {
      const decision = decideSlot(slot, worker, inputs, limits, now, 'ends');
      return changedSlot(slot, worker, decision) ?? [];
    });
}

/**
 * Decides again, without ending a silent worker that a silence guard holds, or without repeating a create that its zone does not allow. The
 * worker may still end for another cause, its node may have changed, or another run may pay for it. Undefined: no change.
 */
export function decideWithout(
  what: 'silence' | 'request',
  {slot, before}: SlotDecision,
  inputs: PlanInputs,
  limits: Limits,
  now: number,
): SlotDecision | undefined {
  const ask_again_s = what === 'request' ? Number.POSITIVE_INFINITY : limits.ask_again_s;
  const silence = what === 'silence' ? 'held' : 'ends';
  return changedSlot(slot, before, decideSlot(slot, before, inputs, {...limits, ask_again_s}, now, silence));
}

function changedSlot(slot: Slot, before: Worker, decision: WorkerDecision): SlotDecision | undefined {
  if (decision.worker === before) return undefined;
  return {...decision, slot, before, change: changeOf(before, decision)};
}

/** Action of a commit since `since_ms` whose answer was lost, so nobody published its message. */
export function unpublishedAction(
  {name, phase, incarnation, asked_at}: Worker,
  since_ms: number,
): WorkerAction[] {
  if (asked_at === null || msOf(asked_at) < since_ms) return [];
  if (phase !== 'creating' && phase !== 'deleting') return [];
  return [{kind: phase === 'creating' ? 'create' : 'delete', worker: name, incarnation}];
}
