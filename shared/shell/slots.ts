/** Decides about slots, each by its document and what Cloud TPU shows of it, and writes what follows in one transaction. */
import {accrue, paidBy, pricedAt} from '../core/cost.ts';
import {freeFromDead} from '../core/lease.ts';
import {decideWorker, type Wanted, type WorkerAction, type WorkerDecision} from '../core/life.ts';
import {type Slot as Place, parseWorkerName} from '../core/names.ts';
import {
  allowance,
  askedFor,
  askOf,
  fullUntil,
  gaveNode,
  lostNode,
  type PlacementLimits,
  rateOf,
  refusedBy,
  type Zone,
} from '../core/placement.ts';
import type {Pool} from '../core/pool.ts';
import type {Prices} from '../core/prices.ts';
import {nodeStanding, queueStanding} from '../core/provider.ts';
import type {Stream} from '../core/stream.ts';
import {iso} from '../core/time.ts';
import {isAlive, newWorker, type Worker} from '../core/worker.ts';
import type {Transaction} from '../ports.ts';
import {abreast} from './abreast.ts';
import {recordAttempt} from './attempts.ts';
import type {Deps} from './deps.ts';
import {publishActions, zoneOf} from './fleet.ts';
import {putBack, workOf} from './holders.ts';
import {billsFor, priceOf} from './money.ts';
import {type Look, observe} from './nodes.ts';
import {readPool} from './pools.ts';
import {advanceStream} from './progress.ts';
import {createsRecords, unlessBroken, workerRecords, zoneRecords} from './records.ts';
import {tell} from './timeline.ts';

/** At which price is made what is to be made, and for which run; what `made_at_ms` did not know of may be spent or finished since. */
export type Plan = {
  pool: Pool;
  prices: Prices;
  payers: ReadonlyMap<string, string | null>;
  made_at_ms: number;
  /** How many nodes may ever have been asked for, with those of this plan: others may have asked since it was made. */
  mostCreates: number;
};

/** A slow function asks for nothing on a plan that is older than a tick. */
const PLAN_LASTS_MS = 60_000;

/** `seen` is the worker as it was when the wanted slots were chosen. */
export type Slot = {name: string; place: Place; wanted: Wanted; seen: Worker | undefined};

/** Nothing for a node of ours whose name no slot can have. */
export function slotOf(name: string, wanted: Wanted, workers: ReadonlyMap<string, Worker>): Slot[] {
  const place = parseWorkerName(name);
  return place ? [{name, place, wanted, seen: workers.get(name)}] : [];
}

/** Slots that are decided about in one transaction. */
const MOST_SLOTS = 50;

/**
 * Decides about slots; true while any is not gone. Most have nothing new to them, as what was read of them already shows, and are
 * let be. Of the others, those that change one document together take turns, many in a transaction.
 */
export async function lookAtSlots(
  deps: Deps,
  look: Look,
  slots: readonly Slot[],
  plan: Plan,
): Promise<boolean> {
  const now = deps.now();
  let busy = false;
  const turns = new Map<string, Slot[]>();
  for (const slot of slots) {
    const before = slot.seen ?? newWorker(slot.name, slot.place, now);
    const decision = decide(deps, look, slot, before, plan, now);
    if (decision.worker === before) busy ||= before.phase !== 'gone';
    else {
      const shared = sharedBy(before, decision) ?? slot.name;
      turns.set(shared, [...(turns.get(shared) ?? []), slot]);
    }
  }
  await abreast([...turns.values()], async queue => {
    for (let first = 0; first < queue.length; first += MOST_SLOTS)
      busy = (await decideSlots(deps, look, queue.slice(first, first + MOST_SLOTS), plan)) || busy;
  });
  return busy;
}

/** What the change writes beside the slot's own documents: its zone, or its pool and runs. */
function sharedBy(before: Worker, decision: WorkerDecision): string | undefined {
  if (isOver(before, decision)) return 'bills';
  return changeOf(before, decision) && before.zone;
}

function isOver(before: Worker, {worker}: WorkerDecision): boolean {
  return worker.phase === 'gone' && before.phase !== 'gone';
}

/** What became of a slot in the transaction that decides about it; `stream` is what a life that ends here leaves behind. */
type Turn = WorkerDecision & {before: Worker; change: Change | undefined; stream: Stream | undefined};

/** Decides about slots by what they are now; true while any is not gone. */
async function decideSlots(deps: Deps, look: Look, slots: readonly Slot[], plan: Plan): Promise<boolean> {
  const {placement} = deps.config;
  const {actions, freed, isAnyLeft} = await deps.store.transaction(async tx => {
    const now = deps.now();
    const current = await Promise.all(slots.map(slot => readSlot(tx, slot, now)));
    const turns = await decideTurns(deps, tx, look, current, plan, now);
    const knownZones = await readZones(deps, tx, turns, now);
    const isAnyAsked = turns.some(({change}) => change === 'asked');
    const pool = isAnyAsked ? await readPool(deps) : undefined;
    const counted = isAnyAsked ? await unlessBroken(deps, () => createsRecords.get(tx)) : undefined;
    // A count that cannot be read allows no node.
    let creates = counted?.creates ?? Number.POSITIVE_INFINITY;
    const over = turns.filter(turn => isOver(turn.before, turn)).map(({worker}) => worker);
    const bills = await billsFor(deps, tx, over, now);

    const zones = new Map(knownZones);
    const left = new Map(current.map(({worker}) => [worker.name, worker]));
    const actions: WorkerAction[] = [];
    for (const turn of turns) {
      const {before, change} = turn;
      const zone = zones.get(before.zone);
      // Asked here again, because another look may have asked the zone, or spent the money, since the slots were chosen.
      const isLate = now - plan.made_at_ms > PLAN_LASTS_MS;
      if (zone && isAsking(change) && (isLate || allowance(zone, placement, now) === 0)) continue;
      if (change === 'asked' && (!plan.payers.get(before.name) || creates >= plan.mostCreates)) continue;
      if (change === 'asked') creates += 1;
      if (zone && change) zones.set(zone.zone, tellZone(deps, tx, zone, change, turn, now));
      const terms = pool && zone && change === 'asked' ? termsOf(deps, pool, zone, before, plan, now) : {};
      const worker = {...turn.worker, ...terms, updated_at: iso(now)};
      workerRecords.set(tx, worker);
      left.set(worker.name, worker);
      if (isEnding(before, worker)) endLife(tx, turn, now);
      const about = {
        kind: 'worker',
        worker: worker.name,
        ...(turn.stream ? leaseOf(turn.stream) : {}),
      } as const;
      for (const text of turn.events) tell(tx, {...about, text}, now);
      actions.push(...turn.actions);
    }
    for (const [name, zone] of zones) if (zone !== knownZones.get(name)) zoneRecords.set(tx, zone);
    if (counted && creates > counted.creates) createsRecords.set(tx, {...counted, creates});
    bills();
    const isAnyLeft = [...left.values()].some(({phase}) => phase !== 'gone');
    return {actions, freed: turns.flatMap(({stream}) => stream ?? []), isAnyLeft};
  });
  await publishActions(deps, actions);
  // Shards whose events are still under way count before anybody else is given the stream.
  await abreast(freed, ({run, stream}) => unlessBroken(deps, () => advanceStream(deps, run, stream)));
  return isAnyLeft;
}

function decide(deps: Deps, look: Look, slot: Slot, before: Worker, plan: Plan, now: number): WorkerDecision {
  const decision = decideWorker(before, observe(look, before), slot.wanted, deps.config.limits, now);
  const priced = pricedAt(decision.worker, () => priceOf(plan.prices, plan.pool, slot.place.zone));
  const worker = paidBy(priced, plan.payers.get(slot.name) ?? null);
  if (worker === decision.worker) return decision;
  const events = [...decision.events];
  if (priced !== decision.worker)
    events.push(`${slot.name} costs $${priced.usd_per_hour} an hour, as is known now`);
  if (worker !== priced)
    events.push(`${slot.name} is there for ${worker.charged_to} now: ${before.charged_to} needs it no more`);
  return {...decision, worker, events};
}

/** The slots with something new to them. */
async function decideTurns(
  deps: Deps,
  tx: Transaction,
  look: Look,
  current: readonly {slot: Slot; worker: Worker}[],
  plan: Plan,
  now: number,
): Promise<Turn[]> {
  const changed = current
    .filter(({slot, worker}) => stillHolds(slot, worker))
    .map(({slot, worker: before}) => ({before, ...decide(deps, look, slot, before, plan, now)}))
    .filter(({before, worker}) => worker !== before);
  return Promise.all(
    changed.map(async turn => ({
      ...turn,
      change: changeOf(turn.before, turn),
      stream: isEnding(turn.before, turn.worker) ? await workOf(deps, tx, turn.before) : undefined,
    })),
  );
}

/**
 * Whether the slot is still what it was chosen as. What became since of one that was not wanted, somebody wanted, and the next look
 * will know why; but there is no money for a life, whatever it does.
 */
function stillHolds({wanted, seen}: Slot, worker: Worker): boolean {
  if (wanted === 'wanted' || worker.phase === (seen?.phase ?? 'gone')) return true;
  return wanted === 'dismissed' && worker.incarnation === seen?.incarnation;
}

async function readSlot(tx: Transaction, slot: Slot, now: number): Promise<{slot: Slot; worker: Worker}> {
  const found = (await workerRecords.get(tx, slot.name)) ?? newWorker(slot.name, slot.place, now);
  return {slot, worker: accrue(found, now)};
}

/** Those of which something shows. */
async function readZones(deps: Deps, tx: Transaction, turns: readonly Turn[], now: number) {
  const names = turns.filter(({change}) => change).map(({before}) => before.zone);
  const zones = await Promise.all([...new Set(names)].map(name => zoneOf(deps, tx, name, now)));
  return new Map(zones.map(zone => [zone.zone, zone]));
}

/** How a node is asked for, at what price, and who pays. */
function termsOf(deps: Deps, pool: Pool, zone: Zone, {name}: Worker, {prices, payers}: Plan, now: number) {
  const usd_per_hour = priceOf(prices, pool, zone.zone);
  const ask = askOf(pool.provisioning, zone, deps.config.placement, now);
  return {...ask, usd_per_hour, charged_to: payers.get(name) ?? null};
}

type Change = 'asked' | 'asked again' | 'given' | 'refused' | 'lost';

/** What the decision shows of the slot's zone, if anything: a node was asked for, given, refused or lost. */
function changeOf(before: Worker, {worker, death}: WorkerDecision): Change | undefined {
  if (worker.phase === 'creating' && before.phase === 'gone') return 'asked';
  if (worker.phase === 'creating' && worker.asked_at !== before.asked_at) return 'asked again';
  if (death?.refusal) return 'refused';
  // Not by its phase, which an agent that speaks first has changed already.
  const was = nodeStanding(before);
  const isNew = (was === null || was === 'coming') && nodeStanding(worker) === 'up';
  if (isNew && isAlive(worker)) return 'given';
  if (death === undefined || death.kind === 'asked' || hasEnded(before)) return undefined;
  // One that was taken before anybody saw it READY says the same of its zone as one that was taken just after.
  const wasGiven = isAlive(before) || nodeStanding(worker) === 'over' || queueStanding(worker) === 'over';
  return wasGiven ? 'lost' : undefined;
}

function isAsking(change: Change | undefined): boolean {
  return change === 'asked' || change === 'asked again';
}

function zoneAfter(
  limits: PlacementLimits,
  zone: Zone,
  change: Change,
  {before, death}: Turn,
  now: number,
): Zone {
  switch (change) {
    case 'asked':
    case 'asked again':
      return askedFor(zone, now);
    case 'given':
      return gaveNode(zone, now);
    case 'refused':
      return refusedBy(zone, death?.refusal ?? 'transient', death?.cause ?? '', limits, now);
    case 'lost': {
      const neverWorked = death?.kind === 'setup' || death?.kind === 'broken' || before.phase === 'creating';
      return lostNode(zone, neverWorked ? null : (before.ready_at ?? before.phase_since_at), now);
    }
    default:
      return change satisfies never;
  }
}

function isEnding(before: Worker, after: Worker): boolean {
  return hasEnded(after) && !hasEnded(before);
}

function hasEnded({phase}: Worker): boolean {
  return phase === 'deleting' || phase === 'gone';
}

/** Records the attempt, and frees what the slot worked on. */
function endLife(tx: Transaction, turn: Turn, now: number): void {
  const {before, stream, death} = turn;
  recordAttempt(tx, before, turn, now);
  const free = stream && freeFromDead(stream, before.name, death, now);
  if (free) putBack(tx, free, undefined, now);
}

/** The zone after what its slot shows of it; a new rate is told. */
function tellZone(
  {config}: Deps,
  tx: Transaction,
  zone: Zone,
  change: Change,
  turn: Turn,
  now: number,
): Zone {
  const next = zoneAfter(config.placement, zone, change, turn, now);
  const [was, is] = [zone, next].map(each => rateOf(each, config.placement, now));
  const about = {kind: 'worker', worker: turn.before.name} as const;
  const text = `${zone.zone} is asked for nodes at the rate "${is}", not "${was}": of its last ${next.losses.length} losses, the last lived ${next.losses.at(-1)?.lived_s} s`;
  if (was !== is) tell(tx, {...about, text}, now);
  const full_until_at = isAsking(change) ? fullUntil(next, config.placement, now) : undefined;
  if (full_until_at) {
    const {creates_per_hour} = config.placement;
    const text = `${zone.zone} has been asked for ${creates_per_hour} nodes within an hour: no more before ${full_until_at}`;
    tell(tx, {...about, text}, now);
  }
  return next;
}

function leaseOf({run, stream, epoch}: Stream) {
  return {run, stream, epoch};
}
