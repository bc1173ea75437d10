/** Consequences of the decision about a slot: its zone, the end of an incarnation, its bill. */
import {addPreemption} from '../billing/bills.ts';
import {totalOf, workerEvent} from '../billing/cost.ts';
import {endAttempt, endByDeath} from '../job/lifecycle.ts';
import {paths} from '../names.ts';
import {type Counts, withChurn} from '../records/churn.ts';
import type {Stream} from '../records/stream.ts';
import type {Worker} from '../records/worker.ts';
import {chargeSuspect, freeFromDead} from '../stream/lease.ts';
import {iso, msOf} from '../time.ts';
import {attemptOf, withBill} from '../worker/attempt.ts';
import {isFailedBoot, isMachineDeath} from '../worker/liveness.ts';
import {nodeStanding} from '../worker/provider-states.ts';
import {limiterEvent, refusalsOf} from '../zone/limiter.ts';
import {paceOf} from '../zone/placement.ts';
import {type Change, isEnding, zoneAfter} from '../zone/zone-changes.ts';
import {countFailedBoot, countMachineDeath, giveBootBack} from './shared-documents.ts';
import type {Context, SlotWrites} from './slot-writes.ts';
import {becomesGone, type SlotDecision} from './slots.ts';

export function apply(writes: SlotWrites, decision: SlotDecision, context: Context): void {
  const {documents, settings, now} = context;
  const {before, change} = decision;
  const worker = {...decision.worker, updated_at: iso(now)};
  writes.workers.push(worker);
  if (change) changeZone(writes, decision, change, context);
  const isEnd = isEnding(before, worker);
  const stream = isEnd ? documents.works.get(before.name)?.stream : undefined;
  if (isEnd) endIncarnation(writes, decision, context);
  else if (worker.refused && !before.refused) giveBootBack(writes.shared, before, settings.placement, now);
  if (becomesGone(before, worker)) bill(writes, worker, context);
  const lease = stream ? {run: stream.run, stream: stream.stream, epoch: stream.epoch} : {};
  for (const text of decision.events) writes.events.push({...workerEvent(worker, text), ...lease});
  writes.actions.push(...decision.actions);
  if (stream) writes.freedStreams.push(stream);
}

/** Changes the zone. Records an event if its state or its time between two requests changes. */
function changeZone(
  writes: SlotWrites,
  decision: SlotDecision,
  change: Change,
  {inputs, settings, now}: Context,
): void {
  const {name, pool, zone: zoneName} = decision.before;
  const zone = writes.shared.zones.get(zoneName);
  if (!zone) return;
  const after = zoneAfter(settings, zone, change, decision, now);
  const counts = churnOf(change, decision, now);
  const next = counts ? withChurn(after, inputs.pool.accelerator, counts, now) : after;
  writes.shared.zones.set(zoneName, next);
  const record = (text: string, fold?: string) =>
    writes.events.push(workerEvent(decision.worker, text, fold));
  if (zone.limiter.state !== 'open' && next.limiter.state === 'open' && change === 'given')
    writes.isOpened = true;
  const limited = limiterEvent(zoneName, zone.limiter, next.limiter);
  const isStop = next.limiter.state === 'stopped' && zone.limiter.state !== 'stopped';
  if (limited !== undefined && isStop) writes.stops.push({worker: name, text: limited});
  else if (limited !== undefined) record(limited, refusalsOf(pool, zoneName, next.limiter));
  const [before, is] = [zone, next].map(each => paceOf(each, settings.placement, now));
  if (before !== is)
    record(`${paceText(zoneName, is ?? 0)}: its last lost node lived ${next.losses.at(-1)?.lived_s} s`);
}

function paceText(zone: string, pace_s: number): string {
  if (pace_s === 0) return `creates in ${zone} are no longer limited`;
  return Number.isFinite(pace_s)
    ? `creates in ${zone} are limited to one every ${pace_s} s`
    : `creates in ${zone} are paused until its losses are older`;
}

/**
 * Ends an incarnation: records its attempt, releases its stream or job, and charges the stream that it lost earlier by silence. Another
 * worker of the same transaction may hold that stream now.
 */
function endIncarnation(
  writes: SlotWrites,
  decision: SlotDecision,
  {documents, inputs, settings, now}: Context,
): void {
  const {before, death} = decision;
  const {bundle, logs_bucket} = settings;
  const work = documents.works.get(before.name);
  const newest = (read: Stream | undefined) => read && (writes.streams.get(keyOf(read)) ?? read);
  const stream = newest(work?.stream);
  const suspected = death?.kind === 'silent' ? newest(work?.suspectStream) : undefined;
  const attempt = attemptOf(before, decision, logs_bucket, now);
  writes.attempts.set(paths.attempt(before.name, before.incarnation), attempt);
  if (death && isFailedBoot(death)) {
    const stops = countFailedBoot(writes.shared, before, death, bundle, now);
    writes.stops.push(...stops.map(text => ({worker: before.name, text})));
  } else if (before.agent_at === null) giveBootBack(writes.shared, before, settings.placement, now);
  // Another slice of the job may end in the same transaction.
  const isEnded = writes.jobs.some(({before}) => before.job === work?.job?.job);
  if (work?.job && !isEnded) {
    const ended = endAttempt(work.job, endByDeath(before.name, death), before.usd_per_hour, now);
    writes.jobs.push({before: work.job, ended});
  }
  const free = stream && freeFromDead(stream, before.name, death, now);
  const charged =
    death && suspected && chargeSuspect(suspected, before, `died while working on it: ${death.cause}`, now);
  const next = free ?? charged;
  const changed = next === suspected ? undefined : next;
  if (changed) writes.streams.set(keyOf(changed), changed);
  const failed = changed?.status === 'failed' ? changed : undefined;
  if (death && isMachineDeath(death))
    countMachineDeath(writes.shared, decision, death, failed, inputs.shardsByRun, now);
}

/** Adds the cost of the incarnation to its attempt, and later to its payers. */
function bill(writes: SlotWrites, worker: Worker, {documents, inputs, now}: Context): void {
  const path = paths.attempt(worker.name, worker.incarnation);
  const stored = documents.attempts.get(path);
  // If the incarnation ends together with its node, its record has the cost already.
  if (stored) writes.attempts.set(path, withBill(stored, worker, now));
  const attempt = stored ?? writes.attempts.get(path);
  writes.endedWorkers.push(worker);
  const {ready_at, zone, costs, computed_tokens, unstored_tokens} = worker;
  // A billed incarnation whose node was seen again has been counted as preempted already.
  const isNew = stored?.gone_at === undefined;
  // Cloud TPU may take a node that it has listed before the node is READY: a life of no length.
  const isTaken =
    attempt?.cause_kind === 'taken' && (ready_at !== null || (isNew && attempt.provider_state !== null));
  if (ready_at === null && !isTaken) return;
  if (isTaken && isNew) addPreemption(writes.shared, worker, now);
  const life = {
    lives: 1,
    life_s: ready_at === null ? 0 : secondsFrom(ready_at, now),
    preemptions: isTaken ? 1 : 0,
    usd: totalOf(costs),
    tokens: computed_tokens - unstored_tokens,
  };
  const {zones} = writes.shared;
  const found = zones.get(zone);
  if (found) zones.set(zone, withChurn(found, inputs.pool.accelerator, life, now));
}

function churnOf(change: Change, {before, worker}: SlotDecision, now: number): Partial<Counts> | undefined {
  switch (change) {
    case 'asked':
    case 'asked again':
      return {tries: 1};
    case 'refused':
      return {refusals: 1};
    case 'given':
      if (nodeStanding(worker) === 'coming' || before.asked_at === null) return undefined;
      return {given: 1, wait_s: secondsFrom(before.asked_at, now)};
    case 'lost':
      return undefined;
    default:
      return change satisfies never;
  }
}

const secondsFrom = (since: string, now: number) => Math.max(0, Math.round((now - msOf(since)) / 1000));

const keyOf = ({run, stream}: Stream) => `${run}/${stream}`;
