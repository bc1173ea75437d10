import {accrue, totalOf} from '../core/cost.ts';
import type {Death} from '../core/death.ts';
import {freeFromDead, isLeasedTo} from '../core/lease.ts';
import {logObject, parseWorkerName, paths} from '../core/names.ts';
import {
  allowance,
  askedFor,
  askOf,
  gaveNode,
  lostNode,
  newZone,
  rateOf,
  refusedBy,
  type Zone,
} from '../core/placement.ts';
import {type Pool, wantedSlots} from '../core/pool.ts';
import type {Prices} from '../core/prices.ts';
import {nodeStanding} from '../core/provider.ts';
import type {Stream} from '../core/stream.ts';
import {iso, msOf} from '../core/time.ts';
import {
  adoptNode,
  decideWorker,
  isAlive,
  isUnheard,
  newWorker,
  type Observation,
  type Wanted,
  type Worker,
  type WorkerAction,
  type WorkerDecision,
} from '../core/worker.ts';
import type {Tpu, Transaction} from '../ports.ts';
import type {Deps} from './deps.ts';
import {INCARNATION_LABEL, MANAGED, publishActions} from './fleet.ts';
import {billsFor, holdTheSpent, priceOf, readPrices} from './money.ts';
import {restorePool} from './orders.ts';
import {poolRecords, streamRecords, unlessBroken, workerRecords, zoneRecords} from './records.ts';
import {whatIsLeft} from './runs.ts';
import {tell} from './timeline.ts';

/** What Cloud TPU listed, and when that was asked for. */
export type Look = {at_ms: number; tpus: ReadonlyMap<string, Tpu>; unreachable: readonly string[]};

const NOT_LOOKED: Look = {at_ms: 0, tpus: new Map(), unreachable: []};

/** After work came in: asks for the TPUs it wants without waiting for the tick, and concludes nothing about any other. */
export async function lookForWork(deps: Deps): Promise<void> {
  const fleet = await readFleet(deps);
  const first = await planSlots(deps, fleet);
  const isNew = [...first.wanted].some(name => !fleet.workers.has(name));
  // A slot without a document may have a node all the same, if the Store was lost.
  const plan = isNew ? await planSlots(deps, await adoptUnknown(deps, fleet)) : first;
  for (const name of plan.wanted)
    await lookAtSlot(deps, NOT_LOOKED, {name, wanted: 'wanted', seen: plan.workers.get(name)}, plan);
}

/** The workers as documents say, and the slots whose document cannot be read. */
export type Fleet = {workers: ReadonlyMap<string, Worker>; broken: ReadonlySet<string>};

export async function readFleet(deps: Deps): Promise<Fleet> {
  const broken = new Set<string>();
  const parsed = workerRecords.parseAll(await deps.store.query('workers'), (error, name) => {
    broken.add(name);
    deps.log('ERROR', error.message);
  });
  return {workers: new Map(parsed.map(worker => [worker.name, worker])), broken};
}

/** Nodes as Cloud TPU lists them now. */
export async function lookAtNodes(deps: Deps): Promise<Look> {
  const at_ms = deps.now();
  const {tpus, unreachable} = await deps.tpus.list();
  return {at_ms, tpus: new Map(tpus.map(tpu => [tpu.name, tpu])), unreachable};
}

async function adoptUnknown(deps: Deps, fleet: Fleet): Promise<Fleet> {
  return adoptNodes(deps, await lookAtNodes(deps), fleet);
}

/**
 * Makes the document again of each of our nodes that has none: the Store was lost, and what the node is doing is worth more than
 * a new one. If it is not wanted, or not well, the same look finds that out.
 */
export async function adoptNodes(deps: Deps, look: Look, {workers, broken}: Fleet): Promise<Fleet> {
  const all = new Map(workers);
  for (const tpu of look.tpus.values()) {
    const place = parseWorkerName(tpu.name);
    const incarnation = Math.max(...incarnationsOf(tpu));
    if (all.has(tpu.name) || broken.has(tpu.name) || !isManaged(tpu)) continue;
    if (!place || place.zone !== tpu.zone || incarnation < 0) continue;
    const pool = await readPool(deps);
    const usd_per_hour = priceOf(await readPrices(deps), pool, place.zone);
    const adopted = await deps.store.transaction(async tx => {
      const known = await workerRecords.get(tx, tpu.name);
      if (known) return known;
      const now = deps.now();
      const ready_at = tpu.state === 'READY' ? tpu.created_at : null;
      const fresh = {...newWorker(tpu.name, place, now), usd_per_hour};
      const provisioning = tpu.queued ? 'queued-resource' : 'node';
      const valid_until_at = tpu.queued?.valid_until_at ?? null;
      const life = {incarnation, ready_at, provisioning, valid_until_at} as const;
      const worker = adoptNode(fresh, life, iso(look.at_ms));
      workerRecords.set(tx, worker);
      const text = `${tpu.name} is ${tpu.state ?? tpu.queued?.state} and no document knows it: it goes on as incarnation ${incarnation}`;
      tell(tx, {kind: 'worker', worker: tpu.name, text}, now);
      return worker;
    });
    all.set(tpu.name, adopted);
  }
  return {workers: all, broken};
}

/** Decides about every slot that has a worker or should have one; true while any is not gone. */
export async function lookAtWorkers(deps: Deps, look: Look, fleet: Fleet): Promise<boolean> {
  const {workers, broken} = fleet;
  const plan = await planSlots(deps, fleet);
  const {wanted, dismissed} = plan;
  let busy = false;
  for (const [name, worker] of workers)
    if (isUnheard(worker, deps.config.lease_s, deps.now())) wanted.add(name);
  for (const name of new Set([...workers.keys(), ...wanted, ...managed(look.tpus)])) {
    const need = dismissed.has(name) ? 'dismissed' : wanted.has(name) ? 'wanted' : 'unwanted';
    const slot: Slot = {name, wanted: need, seen: workers.get(name)};
    const is_gone = broken.has(name) ? !look.tpus.has(name) : await lookAtSlot(deps, look, slot, plan);
    busy ||= !is_gone;
  }
  return busy;
}

/** What is to be made, and at which price; what `made_at_ms` did not know of may be spent or finished since. */
type Plan = {prices: Prices; made_at_ms: number};

/** A slow function asks for nothing on a plan that is older than a tick. */
const PLAN_LASTS_MS = 60_000;

/**
 * The slots that should have a TPU, and those that must not keep theirs another minute. The streams are counted after the
 * workers were read, so that each worker that is there for a stream finds it counted.
 */
async function planSlots(deps: Deps, {workers, broken}: Fleet) {
  const made_at_ms = deps.now();
  const pool = await knownPool(deps);
  const prices = await readPrices(deps);
  const dismissed = await holdTheSpent(deps, pool, prices, workers);
  const zones = zoneRecords.parseAll(await deps.store.query('zones'), error =>
    deps.log('ERROR', error.message),
  );
  const {streams, fixed} = await whatIsLeft(deps, pool);
  const now = deps.now();
  const allowances = new Map(zones.map(zone => [zone.zone, allowance(zone, deps.config.placement, now)]));
  const out = new Set([...broken, ...dismissed]);
  return {
    made_at_ms,
    workers,
    dismissed,
    prices,
    wanted: wantedSlots(pool, workers, streams, now, {broken: out, allowances, fixed}),
  };
}

/** A document that somebody broke is as good as none: the pool is then what it was deployed as. */
export async function readPool(deps: Deps): Promise<Pool> {
  return (await unlessBroken(deps, () => poolRecords.get(deps.store, deps.config.pool))) ?? deps.config.pool;
}

/** One whose document is not there is first made again as messages had left it. */
export async function knownPool(deps: Deps): Promise<Pool> {
  const isKnown = await deps.store.get(paths.pool(deps.config.pool.pool));
  return (!isKnown && (await unlessBroken(deps, () => restorePool(deps)))) || readPool(deps);
}

/** Nodes with our label, whether or not a document knows them: a lost database must not leave a TPU behind. */
function managed(tpus: ReadonlyMap<string, Tpu>): string[] {
  return [...tpus.values()].filter(isManaged).map(tpu => tpu.name);
}

function isManaged({labels, queued}: Tpu): boolean {
  return [labels, queued?.labels ?? labels].every(given => given['managed-by'] === MANAGED['managed-by']);
}

/**
 * What a look shows of a slot. A look from before the slot entered its phase says nothing about it: the node may have come
 * or gone since.
 */
function observe(look: Look, worker: Worker): Observation {
  if (look.at_ms < msOf(worker.phase_since_at)) return {kind: 'unknown'};
  const tpu = look.tpus.get(worker.name);
  if (tpu && tpu.zone === worker.zone && !isManaged(tpu)) return {kind: 'foreign'};
  if (tpu && tpu.zone === worker.zone) {
    const {state, health, symptoms, queued} = tpu;
    return {kind: 'found', state, health, symptoms, queued, incarnations: incarnationsOf(tpu)};
  }
  return look.unreachable.includes(worker.zone) ? {kind: 'unknown'} : {kind: 'absent'};
}

/** Empty without such a label: nothing says then that it is not the present life. */
function incarnationsOf({labels, queued}: Tpu): number[] {
  const given = [labels, queued?.labels].map(each => each?.[INCARNATION_LABEL] ?? '');
  return [...new Set(given.filter(label => /^\d{1,9}$/.test(label)).map(Number))];
}

/** `seen` is the worker as it was when the wanted slots were chosen. */
type Slot = {name: string; wanted: Wanted; seen: Worker | undefined};

/** Decides about one slot; true when it is gone, or was never one. */
async function lookAtSlot(
  deps: Deps,
  look: Look,
  {name, wanted, seen}: Slot,
  {prices, made_at_ms}: Plan,
): Promise<boolean> {
  const place = parseWorkerName(name);
  if (!place) return true;
  let actions: WorkerAction[] = [];
  const worker = await deps.store.transaction(async tx => {
    const now = deps.now();
    const current = accrue((await workerRecords.get(tx, name)) ?? newWorker(name, place, now), now);
    actions = [];
    // It was not wanted then; what became of it since, somebody wanted, and the next look will know why.
    if (wanted !== 'wanted' && current.phase !== (seen?.phase ?? 'gone')) return current;
    const stream = await unlessBroken(deps, () => streamOf(tx, current));
    const decision = decideWorker(current, observe(look, current), wanted, deps.config.limits, now);
    actions = decision.actions;
    if (decision.worker === current) return current;
    const change = changeOf(current, decision);
    const zone = change && ((await zoneRecords.get(tx, current.zone)) ?? newZone(current.zone, now));
    // Asked here again, because another look may have asked the zone, or spent the money, since the slots were chosen.
    const isLate = now - made_at_ms > PLAN_LASTS_MS;
    if (zone && change === 'asked' && (isLate || allowance(zone, deps.config.placement, now) === 0)) {
      actions = [];
      return current;
    }
    const isOver = decision.worker.phase === 'gone' && current.phase !== 'gone';
    const bills = isOver ? await billsFor(deps, tx, decision.worker, now) : undefined;
    const ask = zone && change === 'asked' ? await termsOf(deps, zone, prices, now) : {};
    if (zone) {
      const next = zoneAfter(deps, zone, change, current, decision.death, now);
      zoneRecords.set(tx, next);
      const [was, is] = [rateOf(zone, deps.config.placement, now), rateOf(next, deps.config.placement, now)];
      const text = `${current.zone} is asked for nodes at the rate "${is}", not "${was}": of its last ${next.losses.length} losses, the last lived ${next.losses.at(-1)?.lived_s} s`;
      if (was !== is) tell(tx, {kind: 'worker', worker: name, text}, now);
    }
    workerRecords.set(tx, {...decision.worker, ...ask, updated_at: iso(now)});
    bills?.();
    if (hasEnded(decision.worker) && !hasEnded(current)) {
      recordAttempt(tx, current, decision, now);
      const free = stream && freeFromDead(stream, name, decision.death, now);
      if (free) streamRecords.set(tx, free);
      if (free?.status === 'failed') tell(tx, {kind: 'stream', ...workOf(free), text: parkedText(free)}, now);
    }
    const about = {kind: 'worker', worker: name} as const;
    const work = stream ? workOf(stream) : {};
    for (const text of decision.events) tell(tx, {...about, ...work, text}, now);
    return decision.worker;
  });
  await publishActions(deps, actions);
  return worker.phase === 'gone';
}

/** The stream whose lease the worker has, as its document says and the stream's agrees. */
export async function streamOf(tx: Transaction, worker: Worker): Promise<Stream | undefined> {
  const [run, stream] = worker.work?.split('/') ?? [];
  if (!run || !stream) return undefined;
  const found = await streamRecords.get(tx, run, stream);
  return found && isLeasedTo(found, {worker: worker.name, incarnation: worker.incarnation})
    ? found
    : undefined;
}

/** How a node is asked for, and at what price. */
async function termsOf(deps: Deps, zone: Zone, prices: Prices, now: number) {
  const pool = await readPool(deps);
  const usd_per_hour = priceOf(prices, pool, zone.zone);
  return {...askOf(pool.provisioning, zone, deps.config.placement, now), usd_per_hour};
}

type Change = 'asked' | 'given' | 'refused' | 'lost';

/** What the decision shows of the slot's zone, if anything: a node was asked for, given, refused or lost. */
function changeOf(before: Worker, {worker, death}: WorkerDecision): Change | undefined {
  if (worker.phase === 'creating' && before.phase === 'gone') return 'asked';
  if (death?.refusal) return 'refused';
  // Not by its phase, which an agent that speaks first has changed already.
  const was = nodeStanding(before);
  const isNew = (was === null || was === 'coming') && nodeStanding(worker) === 'up';
  if (isNew && isAlive(worker)) return 'given';
  return death !== undefined && isAlive(before) ? 'lost' : undefined;
}

function zoneAfter(
  {config}: Deps,
  zone: Zone,
  change: Change,
  worker: Worker,
  death: Death | undefined,
  now: number,
): Zone {
  switch (change) {
    case 'asked':
      return askedFor(zone, now);
    case 'given':
      return gaveNode(zone, now);
    case 'refused':
      return refusedBy(zone, death?.refusal ?? 'transient', death?.cause ?? '', config.placement, now);
    case 'lost': {
      const neverWorked = death?.kind === 'setup' || death?.kind === 'broken';
      return lostNode(zone, neverWorked ? null : (worker.ready_at ?? worker.phase_since_at), now);
    }
    default:
      return change satisfies never;
  }
}

function hasEnded(worker: Worker): boolean {
  return worker.phase === 'deleting' || worker.phase === 'gone';
}

function workOf({run, stream, epoch}: Stream) {
  return {run, stream, epoch};
}

function parkedText({run, stream, faults, last_error}: Stream): string {
  return `Stream ${run}/${stream} is parked after ${faults} machines in a row that stored nothing: ${last_error}; retry revives it`;
}

const ATTEMPT_DAYS = 90;

/** Each life of a slot leaves a document behind: how long it was, what ended it, where its log is. */
function recordAttempt(tx: Transaction, worker: Worker, decision: WorkerDecision, now: number): void {
  tx.set(paths.attempt(worker.name, worker.incarnation), {
    worker: worker.name,
    incarnation: worker.incarnation,
    cause: decision.death?.cause ?? 'not needed any more',
    cause_kind: decision.death?.kind ?? 'not-needed',
    last_phase: worker.phase,
    provisioning: worker.provisioning,
    provider_state: decision.worker.provider_state,
    queue_state: decision.worker.queue_state,
    health: decision.worker.health,
    symptoms: decision.worker.symptoms,
    work: worker.work,
    log: logObject(worker.name, worker.incarnation),
    ready_at: worker.ready_at,
    ended_at: iso(now),
    expire_at: iso(now + ATTEMPT_DAYS * 86_400_000),
    costs: worker.costs,
    cost_usd: totalOf(worker.costs),
  });
}
