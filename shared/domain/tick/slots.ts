/** Slots of a tick, and the decision about each: made from the snapshot, and again in the transaction that writes it. */
import {priceOf} from '../billing/budget.ts';
import {pricedAt, withPayer} from '../billing/cost.ts';
import type {Prices} from '../billing/prices.ts';
import type {Pool} from '../fleet/pool.ts';
import {type Slot as Place, parseWorkerName} from '../names.ts';
import {withSourceVersion} from '../source/source.ts';
import {decideWorker, type Silence, type Wanted} from '../worker/lifecycle.ts';
import type {Limits} from '../worker/limits.ts';
import {type Nodes, observe} from '../worker/nodes.ts';
import type {Served} from '../worker/served-time.ts';
import type {WorkerDecision} from '../worker/transitions.ts';
import {hasEnded, newWorker, type Worker} from '../worker/worker.ts';
import {changeOf} from '../zone/zone-changes.ts';

/** `seen` is the worker of the snapshot. */
export type Slot = {name: string; place: Place; wanted: Wanted; seen: Worker | undefined};

/** Facts of the snapshot that every decision about a slot needs. Budgets and streams may have changed since `read_at_ms`. */
export type Terms = {
  read_at_ms: number;
  nodes: Nodes;
  pool: Pool;
  prices: Prices;
  payers: ReadonlyMap<string, string | null>;
  mostCreates: number;
  served: Served;
  /** Workers of each zone that have sent a heartbeat. */
  heard: ReadonlyMap<string, number>;
  /** Workers that have been silent, and stored no shard, for longer than any brake holds. */
  lost: ReadonlySet<string>;
  /** Stored shards of each run. */
  stored: ReadonlyMap<string, number>;
};

/** Slots by the document that their decisions share: a zone or the bills. Such slots share transactions. */
export type Turns = ReadonlyMap<string, readonly Slot[]>;

/** Returns no slot for an invalid name. */
export function slotOf(name: string, wanted: Wanted, workers: ReadonlyMap<string, Worker>): Slot[] {
  const place = parseWorkerName(name);
  return place ? [{name, place, wanted, seen: workers.get(name)}] : [];
}

export function decideSlot(
  {name, place, wanted}: Slot,
  before: Worker,
  terms: Terms,
  limits: Limits,
  now: number,
  silence: Silence,
): WorkerDecision {
  const moment = {now, served: terms.served};
  const decision = decideWorker(before, observe(terms.nodes, before), wanted, limits, moment, silence);
  const priced = pricedAt(decision.worker, () => priceOf(terms.prices, terms.pool, place.zone));
  const paid = withPayer(priced, terms.payers.get(name) ?? null);
  const worker = hasEnded(paid) ? paid : withSourceVersion(paid, terms.pool);
  if (worker === decision.worker) return decision;
  const events = [...decision.events];
  if (priced !== decision.worker)
    events.push(`${name} costs $${priced.usd_per_hour} an hour, as is known now`);
  if (paid !== priced)
    events.push(`${name} is there for ${worker.charged_to} now: ${before.charged_to} needs it no more`);
  return {...decision, worker, events};
}

/** Slots whose decision changes a document: deletes, and other decisions. */
export function slotsThatChange(
  slots: readonly Slot[],
  terms: Terms,
  limits: Limits,
  now: number,
): {deletes: Turns; others: Turns} {
  const [deletes, others] = [new Map<string, Slot[]>(), new Map<string, Slot[]>()];
  for (const slot of slots) {
    const before = slot.seen ?? newWorker(slot.name, slot.place, now);
    const decision = decideSlot(slot, before, terms, limits, now, 'ends');
    if (decision.worker === before) continue;
    const turns = decision.actions.some(({kind}) => kind === 'delete') ? deletes : others;
    const shared = sharedBy(before, decision) ?? slot.name;
    turns.set(shared, [...(turns.get(shared) ?? []), slot]);
  }
  return {deletes, others};
}

/** The document that the decision changes beside its slot: a zone, or the bills of pool and runs. */
function sharedBy(before: Worker, decision: WorkerDecision): string | undefined {
  if (isOver(before, decision.worker)) return 'bills';
  return changeOf(before, decision) && before.zone;
}

/** True if the incarnation ends with this decision: its bill is due. */
export function isOver(before: Worker, after: Worker): boolean {
  return after.phase === 'gone' && before.phase !== 'gone';
}

/**
 * True if the plan still applies to the slot. An unwanted worker that changed its phase since the snapshot waits for the next tick. A
 * dismissed incarnation is deleted in any phase. A worker that spoke while Cloud TPU found no node of it is not absent.
 */
export function isStillPlanned({name, wanted, seen}: Slot, worker: Worker, {nodes}: Terms): boolean {
  if (nodes.absent.has(name) && worker.heartbeat_at !== (seen?.heartbeat_at ?? null)) return false;
  if (wanted === 'wanted' || worker.phase === (seen?.phase ?? 'gone')) return true;
  return wanted === 'dismissed' && worker.incarnation === seen?.incarnation;
}
