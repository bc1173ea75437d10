/** Decisions about several slots, from the documents that one transaction has read. The transaction writes what they return. */
import {addBill, addPreemption} from '../billing/bills.ts';
import {pricedAs, priceOf} from '../billing/budget.ts';
import {totalOf} from '../billing/cost.ts';
import {hostsOfType} from '../fleet/accelerators.ts';
import {endAttempt, endByDeath} from '../job/lifecycle.ts';
import {paths} from '../names.ts';
import {type Counts, withChurn} from '../records/churn.ts';
import type {Job} from '../records/job.ts';
import type {Pool} from '../records/pool.ts';
import type {Stream} from '../records/stream.ts';
import {type Worker, withoutWork} from '../records/worker.ts';
import type {Zone} from '../records/zone.ts';
import {chargeSuspect, freeFromDead} from '../stream/lease.ts';
import {iso, msOf} from '../time.ts';
import type {TimelineEvent} from '../timeline.ts';
import {attemptOf, type WorkerAttempt, withBill} from '../worker/attempt.ts';
import type {Limits} from '../worker/limits.ts';
import {isFailedBoot, isMachineDeath} from '../worker/liveness.ts';
import {nodeStanding} from '../worker/provider-states.ts';
import type {WorkerAction} from '../worker/transitions.ts';
import {limiterEvent, refusalsOf} from '../zone/limiter.ts';
import {allowanceOf, askOf, type PlacementLimits, paceOf} from '../zone/placement.ts';
import {type Change, isAsking, isEnding, zoneAfter} from '../zone/zone-changes.ts';
import {
  countFailedBoot,
  countMachineDeath,
  giveBootBack,
  grantBoot,
  judgeSilence,
  type SharedDocuments,
} from './shared-documents.ts';
import {becomesGone, decideWithout, type PlanInputs, type SlotDecision} from './slots.ts';

/** Age of a plan after which a slow function creates no node from it, and age of a list after which it deletes no unknown node. */
const PLAN_LASTS_MS = 60_000;

/** Age of the first read after which a plan creates no node: the budget may be spent since, and `on-tick` ends after 540 s. */
const READS_LAST_MS = 300_000;

export type SlotSettings = {
  limits: Limits;
  placement: PlacementLimits;
  bundle: string;
  logs_bucket: string;
};

/** `stream`, `job`: leased to an incarnation that ends. `suspectStream`: the one that the worker lost when it fell silent. */
export type Work = {
  stream: Stream | undefined;
  job: Job | undefined;
  suspectStream: Stream | undefined;
  members?: readonly Worker[];
};

/** `works`: by the name of the worker. `attempts`: records of ended incarnations, by their path. */
export type SlotDocuments = {
  shared: SharedDocuments;
  works: ReadonlyMap<string, Work>;
  attempts: ReadonlyMap<string, WorkerAttempt>;
};

export type SlotWrites = {
  workers: Worker[];
  attempts: Map<string, WorkerAttempt>;
  /** Freed or charged streams, by run and stream. */
  streams: Map<string, Stream>;
  jobs: {before: Job; ended: Job}[];
  shared: SharedDocuments;
  /** Incarnations whose nodes are gone: their bill is due. */
  endedWorkers: Worker[];
  events: TimelineEvent[];
  /** Pools and zones whose creates stop. */
  stops: {worker: string; text: string}[];
  actions: WorkerAction[];
  heldWorkers: Worker[];
  freedStreams: Stream[];
  /** True if a zone gives nodes again: the next tick requests the others. */
  isOpened: boolean;
  /** Slots whose request is dropped, because the plan is too old. */
  lateSlots: string[];
};

type Context = {documents: SlotDocuments; inputs: PlanInputs; settings: SlotSettings; now: number};

/** Decides which of the changes the shared documents allow, and what follows from them. */
export function decideSlots(
  changes: readonly SlotDecision[],
  documents: SlotDocuments,
  inputs: PlanInputs,
  settings: SlotSettings,
  now: number,
): SlotWrites {
  const {zones, runs} = documents.shared;
  const shared = {...documents.shared, zones: new Map(zones), runs: new Map(runs)};
  const writes: SlotWrites = {
    ...{workers: [], attempts: new Map(), streams: new Map(), jobs: [], shared},
    ...{endedWorkers: [], events: [], stops: [], actions: [], heldWorkers: [], freedStreams: []},
    isOpened: false,
    lateSlots: [],
  };
  const context = {documents, inputs, settings, now};
  for (const change of changes) {
    const decision = allowed(writes, change, context);
    if (decision) apply(writes, decision, context);
  }
  freeMembers(writes, documents, now);
  addBill(shared, writes.endedWorkers, now);
  return writes;
}

/** Frees the other slices of each job whose attempt has ended with one slice. */
function freeMembers(writes: SlotWrites, {works}: SlotDocuments, now: number): void {
  const ended = new Set(writes.jobs.map(({before}) => before.job));
  const members = [...works.values()].flatMap(({job, members = []}) =>
    job && ended.has(job.job) ? members : [],
  );
  for (const member of members) {
    const place = writes.workers.findIndex(({name}) => name === member.name);
    const current = writes.workers[place];
    if (!current) writes.workers.push({...withoutWork(member), updated_at: iso(now)});
    else if (current.work !== null) writes.workers[place] = withoutWork(current);
  }
}

/**
 * The decision as silence guards, zones and budgets allow it; undefined if they allow no change. Checked again since the plan: another tick may
 * have created nodes in the zone, or spent the budget.
 */
function allowed(writes: SlotWrites, planned: SlotDecision, {inputs, settings, now}: Context) {
  const {limits, placement, bundle} = settings;
  const {before} = planned;
  const {shared} = writes;
  const verdict = judgeSilence(shared, planned, inputs, limits.silent_s, now);
  if (verdict === 'held') writes.heldWorkers.push(before);
  const judged =
    verdict === 'held' ? decideWithout('silence', planned, inputs, limits, now) : {...planned, verdict};
  const zone = shared.zones.get(before.zone);
  const isLate = now - inputs.planned_at_ms > PLAN_LASTS_MS || now - inputs.read_at_ms > READS_LAST_MS;
  const isAllowed = !zone || allowanceOf(zone, placement, bundle, now).most > 0;
  const isOpen = !zone || (!isLate && isAllowed);
  const isAgain = judged?.change === 'asked again' && !isOpen;
  if (isLate && isAllowed && isAsking(judged?.change)) writes.lateSlots.push(before.name);
  const decision = isAgain ? decideWithout('request', judged, inputs, limits, now) : judged;
  // The list may show an earlier incarnation of a slot that the snapshot has no worker of.
  const hasOldList = !isAsking(decision?.change) && now - inputs.nodes.at_ms > PLAN_LASTS_MS;
  if (!decision || (!decision.slot.seen && (isLate || hasOldList))) return undefined;
  if (decision.change !== 'asked') return decision;
  const {creates, late_pools} = shared.creates ?? {creates: 0, late_pools: []};
  const isPaid = canPay(inputs.payers.get(before.name), shared.pool, inputs);
  if (!zone || !isOpen || !isPaid || creates >= inputs.mostCreates) return undefined;
  const boot = grantBoot(shared, before.zone, settings, now);
  if (!boot) return undefined;
  shared.creates = {...shared.creates, creates: creates + 1, late_pools};
  const fields = createFields(shared.pool ?? inputs.pool, zone, before, inputs, placement, now);
  return {...decision, worker: {...decision.worker, ...fields, ...boot}};
}

/** Sums of dollars may differ by their rounding. */
const ROUNDING_USD = 1e-9;

/**
 * True if the budgets of the payer bear what other ticks have added to the bill since the plan: it may have read the bill before a TPU
 * ended, and the workers after.
 */
function canPay(
  payer: string | null | undefined,
  current: Pool | undefined,
  {tickBill, pool, spare}: PlanInputs,
): boolean {
  if (!payer) return false;
  const since_usd = (current ?? pool).spent_usd - pool.spent_usd - tickBill.usd;
  return since_usd - Math.max(0, spare.get(payer) ?? Number.POSITIVE_INFINITY) <= ROUNDING_USD;
}

/** Fields of a worker whose node is requested: the kind of request, the price and the payer. */
function createFields(
  pool: Pool,
  zone: Zone,
  {name}: Worker,
  {prices, payers}: PlanInputs,
  placement: PlacementLimits,
  now: number,
) {
  const usd_per_hour = priceOf(prices, pool, zone.zone);
  const ask = askOf(pool.provisioning, zone, placement, now);
  const host_count = hostsOfType(pool.accelerator);
  const charged_to = payers.get(name) ?? null;
  return {...ask, usd_per_hour, priced_as: pricedAs(pool), host_count, charged_to};
}

function apply(writes: SlotWrites, decision: SlotDecision, context: Context): void {
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
  for (const text of decision.events)
    writes.events.push({kind: 'worker', worker: worker.name, ...lease, text});
  writes.actions.push(...decision.actions);
  if (stream) writes.freedStreams.push(stream);
}

/** Changes the zone. Records an event if the zone gets another state, or another time between two requests. */
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
    writes.events.push({kind: 'worker', worker: name, text, fold});
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
  if (pace_s === 0) return `${zone} gets every wanted node again`;
  return Number.isFinite(pace_s)
    ? `${zone} gets one create in ${pace_s} s`
    : `${zone} gets no create until its losses are older`;
}

/**
 * Ends an incarnation: records its attempt, frees its stream or job, and charges the stream that it lost earlier by silence. One worker may
 * have lost a stream that another worker of the transaction holds.
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
    death && suspected && chargeSuspect(suspected, before, `died at work on it: ${death.cause}`, now);
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
  // The record of an incarnation that ends with its node has the cost already.
  if (stored) writes.attempts.set(path, withBill(stored, worker, now));
  const attempt = stored ?? writes.attempts.get(path);
  writes.endedWorkers.push(worker);
  const {ready_at, zone, costs, computed_tokens, unstored_tokens} = worker;
  if (ready_at === null) return;
  const isTaken = attempt?.cause_kind === 'taken';
  // The node of a billed incarnation was seen again: it was preempted once.
  if (isTaken && stored?.gone_at === undefined) addPreemption(writes.shared, worker, now);
  const life = {
    lives: 1,
    life_s: secondsFrom(ready_at, now),
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
