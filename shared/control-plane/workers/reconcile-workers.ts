/** Applies decisions about slots: each again in the transaction that writes it, from what its documents say then. */

import {priceOf} from '../../domain/billing/budget.ts';
import {accrue} from '../../domain/billing/cost.ts';
import {allowance, askOf, fullUntil, rateOf, type Zone} from '../../domain/fleet/placement.ts';
import type {Pool} from '../../domain/fleet/pool.ts';
import type {Verdict} from '../../domain/fleet/silence-brake.ts';
import {type Change, changeOf, isAsking, isEnding, zoneAfter} from '../../domain/fleet/zone-changes.ts';
import {paths} from '../../domain/names.ts';
import {chargeSuspect, freeFromDead} from '../../domain/stream/lease.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import {
  decideSlot,
  isOver,
  isStillPlanned,
  type Slot,
  type Terms,
  type Turns,
} from '../../domain/tick/slots.ts';
import {iso, msOf} from '../../domain/time.ts';
import {isMachineDeath} from '../../domain/worker/liveness.ts';
import type {WorkerAction, WorkerDecision} from '../../domain/worker/transitions.ts';
import {newWorker, type Worker} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import {forEachConcurrently} from '../state/concurrency.ts';
import type {Deps} from '../state/deps.ts';
import {createsRecords, skipIfInvalid, workerRecords} from '../state/documents.ts';
import {recordEvent} from '../state/event-log.ts';
import type {Failures} from '../state/failures.ts';
import {returnStream, suspectedBy, workOf} from '../state/lease-documents.ts';
import type {Log} from '../state/log.ts';
import {recordAttempt} from '../state/worker-history.ts';
import {publishActions} from './tpu-operations.ts';
import {
  changeZone,
  countMachineDeath,
  countUnheard,
  giveBootBack,
  grantBoot,
  judgeSilence,
  readShared,
  type Shared,
  writeShared,
} from './zone-and-bill-documents.ts';

/** A slow function creates nothing on a plan that is older than a tick. */
const PLAN_LASTS_MS = 60_000;
/** Slots that are decided about in one transaction. */
const MOST_SLOTS = 50;

/** Silent workers that the brake holds, and streams that lost their worker. */
export type Outcome = {held: Worker[]; freed: Stream[]};

/** Decides about the slots of each turn, many in a transaction, and publishes their creates and deletes. */
export async function reconcileWorkers(
  deps: Deps,
  turns: Turns,
  terms: Terms,
  failures: Failures,
): Promise<Outcome> {
  const all: Outcome = {held: [], freed: []};
  await forEachConcurrently([...turns.values()], async queue => {
    for (let first = 0; first < queue.length; first += MOST_SLOTS) {
      const batch = queue.slice(first, first + MOST_SLOTS);
      const {held, freed} = await decideBatch(deps, batch, terms, failures);
      all.held.push(...held);
      all.freed.push(...freed);
    }
  });
  return all;
}

/**
 * Decides about slots together. A batch that fails is tried once more and then slot by slot, so that one document stops no other slot.
 */
async function decideBatch(
  deps: Deps,
  batch: readonly Slot[],
  terms: Terms,
  failures: Failures,
): Promise<Outcome> {
  const began_ms = deps.now();
  for (const lost_since_ms of [Number.POSITIVE_INFINITY, began_ms])
    try {
      return await decideSlots(deps, batch, {...terms, lost_since_ms}, failures);
    } catch (error) {
      const names = batch.map(({name}) => name).join(', ');
      deps.log('WARNING', `Failed to decide about ${names}, trying again: ${(error as Error).message}`);
    }
  const all: Outcome = {held: [], freed: []};
  for (const slot of batch) {
    const alone = () => decideSlots(deps, [slot], {...terms, lost_since_ms: began_ms}, failures);
    const decided = await failures.isolate(`decide about ${slot.name}`, alone);
    all.held.push(...(decided?.held ?? []));
    all.freed.push(...(decided?.freed ?? []));
  }
  return all;
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

/** `lost_since_ms`: an action that was asked for since then may have been committed and not published. */
type Attempt = Terms & {lost_since_ms: number};

/** Decides about slots by what their documents say now. */
async function decideSlots(
  deps: Deps,
  slots: readonly Slot[],
  plan: Attempt,
  failures: Failures,
): Promise<Outcome> {
  const {placement} = deps.config;
  const {actions, ...outcome} = await deps.store.transaction(async tx => {
    const now = deps.now();
    const moment = {now, served: plan.served};
    const found = await Promise.all(slots.map(slot => readSlot(deps.log, tx, slot, now)));
    const current = found.filter(slot => slot !== undefined);
    const turns = await decideTurns(deps, tx, current, plan, now);
    const isAnyAsked = turns.some(({change}) => change === 'asked');
    const counted = isAnyAsked ? await createsRecords.read(deps.log, tx) : undefined;
    let creates = counted?.creates ?? 0;
    const over = turns.filter(turn => isOver(turn.before, turn.worker)).map(({worker}) => worker);
    const before = await readShared(deps, tx, turns, over, now);
    const shared = {...before, zones: new Map(before.zones), runs: new Map(before.runs)};

    const actions = current.flatMap(({worker}) => lostAction(worker, plan));
    const held: Worker[] = [];
    const freed: Stream[] = [];
    for (const decided of turns) {
      const {before} = decided;
      const verdict = judgeSilence(deps, shared, decided, plan, moment);
      if (verdict === 'held') held.push(before);
      const turn = verdict === 'held' ? withoutSilence(deps, decided, plan, now) : {...decided, verdict};
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
      if (isEnding(before, worker)) endLife(deps, tx, shared, turn, plan, now);
      const about = {
        kind: 'worker',
        worker: worker.name,
        ...(turn.stream ? leaseOf(turn.stream) : {}),
      } as const;
      for (const text of turn.events) recordEvent(tx, {...about, text}, now);
      actions.push(...turn.actions);
      if (turn.stream) freed.push(turn.stream);
    }
    if (counted && creates > counted.creates) createsRecords.set(tx, {...counted, creates});
    writeShared(tx, before, shared, now);
    return {actions, freed, held};
  });
  const asked = actions.map(({kind, worker}) => `${kind} ${worker}`).join(', ');
  await failures.isolate(`publish ${asked}`, () => publishActions(deps.bus, actions));
  return outcome;
}

/** The action of a commit whose answer was lost: its message is published by the next attempt. */
function lostAction({name, phase, incarnation, asked_at}: Worker, {lost_since_ms}: Attempt): WorkerAction[] {
  if (asked_at === null || msOf(asked_at) < lost_since_ms) return [];
  if (phase !== 'creating' && phase !== 'deleting') return [];
  return [{kind: phase === 'creating' ? 'create' : 'delete', worker: name, incarnation}];
}

/** The slots with something new to them. */
async function decideTurns(
  deps: Deps,
  tx: Transaction,
  current: readonly {slot: Slot; worker: Worker}[],
  plan: Terms,
  now: number,
): Promise<Turn[]> {
  const changed = current
    .filter(({slot, worker}) => isStillPlanned(slot, worker))
    .map(({slot, worker: before}) => ({
      slot,
      before,
      ...decideSlot(slot, before, plan, deps.config.limits, now, 'ends'),
    }))
    .filter(({before, worker}) => worker !== before);
  return Promise.all(
    changed.map(async turn => {
      const isOver = isEnding(turn.before, turn.worker);
      return {
        ...turn,
        change: changeOf(turn.before, turn),
        stream: isOver ? await workOf(deps.log, tx, turn.before) : undefined,
        suspected: turn.death?.kind === 'silent' ? await suspectedBy(deps.log, tx, turn.before) : undefined,
      };
    }),
  );
}

/** The decision about a silent worker that is held, if it must go all the same or its node shows anything new. */
function withoutSilence({config}: Deps, turn: Turn, plan: Terms, now: number): Turn | undefined {
  const {slot, before} = turn;
  const decision = decideSlot(slot, before, plan, config.limits, now, 'held');
  if (decision.worker === before) return undefined;
  const stream = isEnding(before, decision.worker) ? turn.stream : undefined;
  return {slot, before, ...decision, change: changeOf(before, decision), stream, suspected: undefined};
}

/**
 * Undefined where the document was lost since the plan: its node is an orphan from the next tick on. An invalid document of a slot
 * without a node is made anew with its incarnation: it must not keep work from the slot.
 */
async function readSlot(
  log: Log,
  tx: Transaction,
  slot: Slot,
  now: number,
): Promise<{slot: Slot; worker: Worker} | undefined> {
  const {name, place, seen} = slot;
  const read = () => workerRecords.get(tx, name);
  const found = seen ? await read() : await skipIfInvalid(log, read);
  if (found) return {slot, worker: accrue(found, now)};
  if (seen) return undefined;
  const {incarnation} = (await tx.get(paths.worker(name))) ?? {};
  const worker = newWorker(name, place, now);
  const isNumber = Number.isSafeInteger(incarnation) && Number(incarnation) > 0;
  return {slot, worker: isNumber ? {...worker, incarnation: Number(incarnation)} : worker};
}

/** How a node is asked for, at what price, and who pays. */
function termsOf(deps: Deps, pool: Pool, zone: Zone, {name}: Worker, {prices, payers}: Terms, now: number) {
  const usd_per_hour = priceOf(prices, pool, zone.zone);
  const ask = askOf(pool.provisioning, zone, deps.config.placement, now);
  return {...ask, usd_per_hour, charged_to: payers.get(name) ?? null};
}

/** Records the attempt, frees the stream that the worker had, and charges the stream that a silent worker has lost before. */
function endLife(
  deps: Deps,
  tx: Transaction,
  shared: Shared,
  turn: Turn,
  {stored}: Terms,
  now: number,
): void {
  const {before, stream, suspected, death} = turn;
  recordAttempt(tx, before, turn, now);
  if (death?.kind === 'unheard') countUnheard(deps, tx, shared, before, now);
  else if (before.hello_at === null) giveBootBack(shared, before);
  const free = stream && freeFromDead(stream, before.name, death, now);
  const charged =
    death && suspected && chargeSuspect(suspected, before, `died at work on it: ${death.cause}`, now);
  const next = free ?? charged;
  const changed = next === suspected ? undefined : next;
  if (changed) returnStream(tx, changed, undefined, now);
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
  if (was !== is) recordEvent(tx, {...about, text}, now);
  const full_until_at = isAsking(change) ? fullUntil(next, config.placement, now) : undefined;
  if (full_until_at) {
    const {creates_per_hour} = config.placement;
    const text = `${zone.zone} has been asked for ${creates_per_hour} nodes within an hour: no more before ${full_until_at}`;
    recordEvent(tx, {...about, text}, now);
  }
  return next;
}

function leaseOf({run, stream, epoch}: Stream) {
  return {run, stream, epoch};
}
