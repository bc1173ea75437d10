/** Decides about slots in one transaction, writes the decisions, and publishes their creates and deletes. */
import {priceOf} from '../../domain/billing/budget.ts';
import type {Pool} from '../../domain/fleet/pool.ts';
import {endAttempt, endByDeath} from '../../domain/job/lifecycle.ts';
import {chargeSuspect, freeFromDead} from '../../domain/stream/lease.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import {isOver, type Slot, type Terms} from '../../domain/tick/slots.ts';
import {iso, msOf} from '../../domain/time.ts';
import {isMachineDeath} from '../../domain/worker/liveness.ts';
import type {WorkerAction} from '../../domain/worker/transitions.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import {allowance, askOf, fullUntil, rateOf, type Zone} from '../../domain/zone/placement.ts';
import {type Change, isAsking, isEnding, zoneAfter} from '../../domain/zone/zone-changes.ts';
import type {Transaction} from '../../ports.ts';
import type {Deps} from '../deps.ts';
import {createsRecords, workerRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {storeEnded} from '../documents/job-documents.ts';
import {returnStream} from '../documents/lease-documents.ts';
import {recordAttempt} from '../documents/worker-history.ts';
import type {Failures} from '../failures.ts';
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
} from './shared-documents.ts';
import {decideTurns, decideWithout, readSlot, type Turn} from './slot-decisions.ts';
import {publishActions} from './tpu-operations.ts';

/** Age of a snapshot, or of its list, after which a slow function creates no node and no document from it. */
const SNAPSHOT_LASTS_MS = 60_000;
/** `held`: silent workers that a brake holds. `freed`: streams that lost their worker. */
export type Outcome = {held: Worker[]; freed: Stream[]};

/** `lost_since_ms`: an action from after this time may be committed and not published. */
type Attempt = Terms & {lost_since_ms: number};

/** Decides about slots from their current documents. */
export async function decideSlots(
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
    const before = await readShared(deps, tx, plan.pool.pool, turns, over, now);
    const shared = {...before, zones: new Map(before.zones), runs: new Map(before.runs)};

    const actions = current.flatMap(({worker}) => lostAction(worker, plan));
    const held: Worker[] = [];
    const freed: Stream[] = [];
    const returned = new Map<string, Stream>();
    for (const decided of turns) {
      const {before} = decided;
      const verdict = judgeSilence(deps, shared, decided, plan, moment);
      if (verdict === 'held') held.push(before);
      let turn =
        verdict === 'held' ? decideWithout('silence', deps, decided, plan, now) : {...decided, verdict};
      const zone = shared.zones.get(before.zone);
      // Checked again: another tick may have created nodes in the zone, or spent the budget, since the plan.
      const isLate = now - plan.read_at_ms > SNAPSHOT_LASTS_MS;
      const isOpen = !zone || (!isLate && allowance(zone, placement, now) > 0);
      if (turn?.change === 'asked again' && !isOpen) turn = decideWithout('request', deps, turn, plan, now);
      if (turn === undefined || (turn.change === 'asked' && !isOpen)) continue;
      // The list may show an earlier incarnation of a slot that the snapshot has no worker of.
      if (!turn.slot.seen && now - plan.nodes.at_ms > SNAPSHOT_LASTS_MS) continue;
      const {change} = turn;
      if (change === 'asked' && (!plan.payers.get(before.name) || creates >= plan.mostCreates)) continue;
      const boot = zone && change === 'asked' ? grantBoot(deps, shared, zone.zone, now) : {};
      if (!boot) continue;
      if (change === 'asked') creates += 1;
      if (zone && change)
        changeZone(shared, before.zone, zone => updateZone(deps, tx, zone, change, turn, now));
      const terms =
        zone && change === 'asked' ? termsOf(deps, shared.pool ?? plan.pool, zone, before, plan, now) : {};
      const worker = {...turn.worker, ...terms, ...boot, updated_at: iso(now)};
      workerRecords.set(tx, worker);
      if (isEnding(before, worker)) endIncarnation(deps, tx, shared, turn, {...plan, returned}, now);
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

/** The action of a commit whose answer was lost. The next attempt publishes its message. */
function lostAction({name, phase, incarnation, asked_at}: Worker, {lost_since_ms}: Attempt): WorkerAction[] {
  if (asked_at === null || msOf(asked_at) < lost_since_ms) return [];
  if (phase !== 'creating' && phase !== 'deleting') return [];
  return [{kind: phase === 'creating' ? 'create' : 'delete', worker: name, incarnation}];
}

/** Terms of a create: the kind of request, the price and the payer. */
function termsOf(deps: Deps, pool: Pool, zone: Zone, {name}: Worker, {prices, payers}: Terms, now: number) {
  const usd_per_hour = priceOf(prices, pool, zone.zone);
  const ask = askOf(pool.provisioning, zone, deps.config.placement, now);
  return {...ask, usd_per_hour, charged_to: payers.get(name) ?? null};
}

/**
 * Records the attempt, frees the worker's stream or job, and charges the stream that a silent worker lost earlier. `returned`: streams that an
 * earlier turn of the transaction wrote. One worker may have lost a stream that another worker holds.
 */
function endIncarnation(
  deps: Deps,
  tx: Transaction,
  shared: Shared,
  turn: Turn,
  {stored, returned}: Pick<Terms, 'stored'> & {returned: Map<string, Stream>},
  now: number,
): void {
  const {before, death} = turn;
  const [stream, suspected] = [turn.stream, turn.suspected].map(
    read => read && (returned.get(`${read.run}/${read.stream}`) ?? read),
  );
  recordAttempt(deps, tx, before, turn, now);
  if (death?.kind === 'unheard') countUnheard(deps, tx, shared, before, now);
  else if (before.hello_at === null) giveBootBack(shared, before);
  if (turn.job) {
    const ended = endAttempt(turn.job, endByDeath(before.name, death), before.usd_per_hour, now);
    storeEnded(deps, tx, turn.job, ended, now);
  }
  const free = stream && freeFromDead(stream, before.name, death, now);
  const charged =
    death && suspected && chargeSuspect(suspected, before, `died at work on it: ${death.cause}`, now);
  const next = free ?? charged;
  const changed = next === suspected ? undefined : next;
  if (changed) {
    returnStream(deps.log, tx, changed, undefined, now);
    returned.set(`${changed.run}/${changed.stream}`, changed);
  }
  const failed = changed?.status === 'failed' ? changed : undefined;
  if (death && isMachineDeath(death)) countMachineDeath(deps, tx, shared, turn, death, failed, stored, now);
}

/** Returns the zone updated by the slot's change. Records an event if its request rate changed, or its creates of the hour are used up. */
function updateZone(
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
  const text = `The request rate of ${zone.zone} is "${is}" now, not "${was}": of its last ${next.losses.length} losses, the last lived ${next.losses.at(-1)?.lived_s} s`;
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
