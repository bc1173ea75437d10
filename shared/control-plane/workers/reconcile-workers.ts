/** Decides about slots, each by its document and what Cloud TPU shows of it, and writes what follows in one transaction. */

import {accrue, paidBy, pricedAt} from '../../domain/billing/cost.ts';
import type {Prices} from '../../domain/billing/prices.ts';
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
} from '../../domain/fleet/placement.ts';
import type {Pool} from '../../domain/fleet/pool.ts';
import type {Verdict} from '../../domain/fleet/silence-brake.ts';
import {type Slot as Place, parseWorkerName} from '../../domain/names.ts';
import {chargeSuspect, freeFromDead} from '../../domain/stream/lease.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import {iso, msOf} from '../../domain/time.ts';
import {decideWorker, type Silence, type Wanted} from '../../domain/worker/lifecycle.ts';
import {isMachineDeath} from '../../domain/worker/liveness.ts';
import {nodeStanding, queueStanding} from '../../domain/worker/provider-states.ts';
import type {Served} from '../../domain/worker/served-time.ts';
import type {WorkerAction, WorkerDecision} from '../../domain/worker/transitions.ts';
import {hasEnded, isAlive, newWorker, type Worker} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import {abreast} from '../state/concurrency.ts';
import type {Deps} from '../state/deps.ts';
import {createsRecords, workerRecords} from '../state/documents.ts';
import {tell} from '../state/event-log.ts';
import type {Failures} from '../state/failures.ts';
import {putBack, suspectedBy, workOf} from '../state/lease-documents.ts';
import {recordAttempt} from '../state/worker-history.ts';
import {advanceStream} from '../streams/advance-checkpoint.ts';
import {priceOf} from './budget.ts';
import {type Look, observe} from './provider-snapshot.ts';
import {
  changeZone,
  countMachineDeath,
  countUnheard,
  giveBootBack,
  grantBoot,
  type Hush,
  judgeSilence,
  readShared,
  type Shared,
  writeShared,
} from './shared-documents.ts';
import {publishActions} from './tpu-operations.ts';

/**
 * The plan of a tick: prices, the run that pays for each slot, the time served, and what the brakes need to know. Money may be spent
 * and work finished since `made_at_ms`.
 */
export type Plan = Hush & {
  pool: Pool;
  prices: Prices;
  payers: ReadonlyMap<string, string | null>;
  made_at_ms: number;
  served: Served;
  /** How many nodes may ever have been asked for, with those of this plan: another tick may have asked since it was made. */
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
 * Decides about slots, and answers whether any is not gone, which silent workers are held and which streams lost their worker. Skips
 * every slot whose decision changes nothing. Publishes deletes before it decides about any other slot. Slots that change one document
 * together take turns, many in a transaction.
 */
export async function lookAtSlots(
  deps: Deps,
  look: Look,
  slots: readonly Slot[],
  plan: Plan,
  failures: Failures,
): Promise<{busy: boolean; held: Worker[]; freed: Stream[]}> {
  const now = deps.now();
  const held: Worker[] = [];
  const freed: Stream[] = [];
  let busy = false;
  const deletes = new Map<string, Slot[]>();
  const others = new Map<string, Slot[]>();
  for (const slot of slots) {
    const before = slot.seen ?? newWorker(slot.name, slot.place, now);
    const decision = decide(deps, look, slot, before, plan, now, 'ends');
    if (decision.worker === before) busy ||= before.phase !== 'gone';
    else {
      const turns = decision.actions.some(({kind}) => kind === 'delete') ? deletes : others;
      const shared = sharedBy(before, decision) ?? slot.name;
      turns.set(shared, [...(turns.get(shared) ?? []), slot]);
    }
  }
  for (const turns of [deletes, others])
    await abreast([...turns.values()], async queue => {
      for (let first = 0; first < queue.length; first += MOST_SLOTS) {
        const batch = queue.slice(first, first + MOST_SLOTS);
        const decided = await decideBatch(deps, look, batch, plan, failures);
        busy ||= decided.isAnyLeft;
        held.push(...decided.held);
        freed.push(...decided.freed);
      }
    });
  return {busy, held, freed};
}

/** Counts the shards of streams that lost their worker: a shard whose event is under way counts before the next worker begins. */
export async function countFreed(deps: Deps, freed: readonly Stream[], failures: Failures): Promise<void> {
  await abreast(freed, ({run, stream}) =>
    failures.isolate(`count the shards of ${run}/${stream}`, () => advanceStream(deps, run, stream)),
  );
}

/**
 * Decides about slots together. A batch that fails is tried once more and then slot by slot, so that one document stops no
 * other slot.
 */
async function decideBatch(
  deps: Deps,
  look: Look,
  batch: readonly Slot[],
  plan: Plan,
  failures: Failures,
): Promise<Outcome> {
  const began_ms = deps.now();
  for (const lost_since_ms of [Number.POSITIVE_INFINITY, began_ms])
    try {
      return await decideSlots(deps, look, batch, {...plan, lost_since_ms}, failures);
    } catch (error) {
      const names = batch.map(({name}) => name).join(', ');
      deps.log('WARNING', `Failed to decide about ${names}, trying again: ${(error as Error).message}`);
    }
  const all: Outcome = {held: [], freed: [], isAnyLeft: false};
  for (const slot of batch) {
    const alone = () => decideSlots(deps, look, [slot], {...plan, lost_since_ms: began_ms}, failures);
    const decided = await failures.isolate(`decide about ${slot.name}`, alone);
    all.held.push(...(decided?.held ?? []));
    all.freed.push(...(decided?.freed ?? []));
    all.isAnyLeft ||= decided?.isAnyLeft ?? true;
  }
  return all;
}

/** What the change writes beside the slot's own documents: its zone, or its pool and runs. */
function sharedBy(before: Worker, decision: WorkerDecision): string | undefined {
  if (isOver(before, decision)) return 'bills';
  return changeOf(before, decision) && before.zone;
}

function isOver(before: Worker, {worker}: WorkerDecision): boolean {
  return worker.phase === 'gone' && before.phase !== 'gone';
}

/**
 * A decision about a slot, in the transaction that writes it. `stream` is leased to an incarnation that ends here; `suspected` was,
 * until its worker fell silent.
 */
type Turn = WorkerDecision & {
  slot: Slot;
  before: Worker;
  change: Change | undefined;
  stream: Stream | undefined;
  suspected: Stream | undefined;
  verdict?: Verdict | undefined;
};

/** Silent workers that are held, streams that lost their worker, and whether any slot is not gone. */
type Outcome = {held: Worker[]; freed: Stream[]; isAnyLeft: boolean};
type Decided = Outcome & {actions: WorkerAction[]};

/** `lost_since_ms`: an action that was asked for since then may have been committed and not published. */
type Attempt = Plan & {lost_since_ms: number};

/** Decides about slots by what their documents say now. */
async function decideSlots(
  deps: Deps,
  look: Look,
  slots: readonly Slot[],
  plan: Attempt,
  failures: Failures,
): Promise<Outcome> {
  const {placement} = deps.config;
  const {actions, freed, held, isAnyLeft} = await deps.store.transaction(async (tx): Promise<Decided> => {
    const now = deps.now();
    const moment = {now, served: plan.served};
    const found = await Promise.all(slots.map(slot => readSlot(tx, slot, now)));
    const current = found.filter(slot => slot !== undefined);
    const turns = await decideTurns(deps, tx, look, current, plan, now);
    const isAnyAsked = turns.some(({change}) => change === 'asked');
    const counted = isAnyAsked ? await createsRecords.read(deps, tx) : undefined;
    let creates = counted?.creates ?? 0;
    const over = turns.filter(turn => isOver(turn.before, turn)).map(({worker}) => worker);
    const before = await readShared(deps, tx, turns, over, now);
    const shared = {...before, zones: new Map(before.zones), runs: new Map(before.runs)};

    const left = new Map(current.map(({worker}) => [worker.name, worker]));
    const actions = current.flatMap(({worker}) => lostAction(worker, plan));
    const held: Worker[] = [];
    const freed: Stream[] = [];
    for (const decided of turns) {
      const {before} = decided;
      const verdict = judgeSilence(deps, shared, decided, plan, moment);
      if (verdict === 'held') held.push(before);
      const turn =
        verdict === 'held' ? withoutSilence(deps, look, decided, plan, now) : {...decided, verdict};
      if (turn === undefined) continue;
      const {change} = turn;
      const zone = shared.zones.get(before.zone);
      // Asked here again, because another tick may have asked the zone, or spent the money, since the slots were chosen.
      const isLate = now - plan.made_at_ms > PLAN_LASTS_MS;
      if (zone && isAsking(change) && (isLate || allowance(zone, placement, now) === 0)) continue;
      if (change === 'asked' && (!plan.payers.get(before.name) || creates >= plan.mostCreates)) continue;
      const boot = zone && change === 'asked' ? grantBoot(deps, shared, zone.zone, now) : {};
      if (!boot) continue;
      if (change === 'asked') creates += 1;
      if (zone && change)
        changeZone(shared, before.zone, zone => tellZone(deps, tx, zone, change, turn, now));
      const terms =
        zone && change === 'asked' ? termsOf(deps, shared.pool ?? plan.pool, zone, before, plan, now) : {};
      const worker = {...turn.worker, ...terms, ...boot, updated_at: iso(now)};
      workerRecords.set(tx, worker);
      left.set(worker.name, worker);
      if (isEnding(before, worker)) endLife(deps, tx, shared, turn, plan, now);
      const about = {
        kind: 'worker',
        worker: worker.name,
        ...(turn.stream ? leaseOf(turn.stream) : {}),
      } as const;
      for (const text of turn.events) tell(tx, {...about, text}, now);
      actions.push(...turn.actions);
      if (turn.stream) freed.push(turn.stream);
    }
    if (counted && creates > counted.creates) createsRecords.set(tx, {...counted, creates});
    writeShared(tx, before, shared, now);
    const isAnyLeft = [...left.values()].some(({phase}) => phase !== 'gone');
    return {actions, freed, held, isAnyLeft};
  });
  const asked = actions.map(({kind, worker}) => `${kind} ${worker}`).join(', ');
  await failures.isolate(`publish ${asked}`, () => publishActions(deps, actions));
  return {held, freed, isAnyLeft};
}

/** The action of a commit whose answer was lost: its message is published by the next attempt. */
function lostAction({name, phase, incarnation, asked_at}: Worker, {lost_since_ms}: Attempt): WorkerAction[] {
  if (asked_at === null || msOf(asked_at) < lost_since_ms) return [];
  if (phase !== 'creating' && phase !== 'deleting') return [];
  return [{kind: phase === 'creating' ? 'create' : 'delete', worker: name, incarnation}];
}

function decide(
  deps: Deps,
  look: Look,
  slot: Slot,
  before: Worker,
  plan: Plan,
  now: number,
  silence: Silence,
): WorkerDecision {
  const moment = {now, served: plan.served};
  const decision = decideWorker(
    before,
    observe(look, before),
    slot.wanted,
    deps.config.limits,
    moment,
    silence,
  );
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
    .map(({slot, worker: before}) => ({slot, before, ...decide(deps, look, slot, before, plan, now, 'ends')}))
    .filter(({before, worker}) => worker !== before);
  return Promise.all(
    changed.map(async turn => {
      const isOver = isEnding(turn.before, turn.worker);
      return {
        ...turn,
        change: changeOf(turn.before, turn),
        stream: isOver ? await workOf(deps, tx, turn.before) : undefined,
        suspected: turn.death?.kind === 'silent' ? await suspectedBy(deps, tx, turn.before) : undefined,
      };
    }),
  );
}

/** The decision about a silent worker that is held, if it must go all the same or its node shows anything new. */
function withoutSilence(deps: Deps, look: Look, turn: Turn, plan: Plan, now: number): Turn | undefined {
  const {slot, before} = turn;
  const decision = decide(deps, look, slot, before, plan, now, 'held');
  if (decision.worker === before) return undefined;
  const stream = isEnding(before, decision.worker) ? turn.stream : undefined;
  return {slot, before, ...decision, change: changeOf(before, decision), stream, suspected: undefined};
}

/**
 * Whether the slot is still what it was chosen as. What became since of one that was not wanted, somebody wanted, and the next look
 * will know why; but there is no money for a life, whatever it does.
 */
function stillHolds({wanted, seen}: Slot, worker: Worker): boolean {
  if (wanted === 'wanted' || worker.phase === (seen?.phase ?? 'gone')) return true;
  return wanted === 'dismissed' && worker.incarnation === seen?.incarnation;
}

/** Nothing where the document was lost since the slot was chosen: its node is an orphan from the next look on. */
async function readSlot(
  tx: Transaction,
  slot: Slot,
  now: number,
): Promise<{slot: Slot; worker: Worker} | undefined> {
  const found = await workerRecords.get(tx, slot.name);
  if (!found && slot.seen) return undefined;
  return {slot, worker: accrue(found ?? newWorker(slot.name, slot.place, now), now)};
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
      const isFailed = death !== undefined && ['setup', 'unheard', 'broken'].includes(death.kind);
      const neverWorked = isFailed || before.phase === 'creating';
      return lostNode(zone, neverWorked ? null : (before.ready_at ?? before.phase_since_at), now);
    }
    default:
      return change satisfies never;
  }
}

function isEnding(before: Worker, after: Worker): boolean {
  return hasEnded(after) && !hasEnded(before);
}

/** Records the attempt, frees the stream that the worker had, and charges the stream that a silent worker has lost before. */
function endLife(deps: Deps, tx: Transaction, shared: Shared, turn: Turn, {stored}: Hush, now: number): void {
  const {before, stream, suspected, death} = turn;
  recordAttempt(tx, before, turn, now);
  if (death?.kind === 'unheard') countUnheard(deps, tx, shared, before, now);
  else if (before.hello_at === null) giveBootBack(shared, before);
  const free = stream && freeFromDead(stream, before.name, death, now);
  const charged =
    death && suspected && chargeSuspect(suspected, before, `died at work on it: ${death.cause}`, now);
  const next = free ?? charged;
  const changed = next === suspected ? undefined : next;
  if (changed) putBack(tx, changed, undefined, now);
  const failed = changed?.status === 'failed' ? changed : undefined;
  if (death && isMachineDeath(death)) countMachineDeath(tx, shared, turn, death, failed, stored, now);
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
