import {accrue, payersFor, totalOf} from '../core/cost.ts';
import type {Death} from '../core/death.ts';
import {freeFromDead} from '../core/lease.ts';
import {
  decideWorker,
  type Observation,
  type Wanted,
  type WorkerAction,
  type WorkerDecision,
} from '../core/life.ts';
import {logObject, type Slot as Place, parseWorkerName, paths} from '../core/names.ts';
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
import {adoptNode, isAlive, isUnheard, newWorker, type Worker} from '../core/worker.ts';
import type {Filter, Tpu, Transaction} from '../ports.ts';
import {abreast} from './abreast.ts';
import type {Deps} from './deps.ts';
import {INCARNATION_LABEL, MANAGED, publishActions} from './fleet.ts';
import {workOf} from './holders.ts';
import {billsFor, holdTheSpent, priceOf, readPrices} from './money.ts';
import {knownPool, readPool} from './pools.ts';
import {advanceStream} from './progress.ts';
import {streamRecords, unlessBroken, workerRecords, zoneRecords} from './records.ts';
import {whatIsLeft} from './runs.ts';
import {tell} from './timeline.ts';

/** What Cloud TPU listed, and when that was asked for. */
export type Look = {at_ms: number; tpus: ReadonlyMap<string, Tpu>; unreachable: readonly string[]};

export const NOT_LOOKED: Look = {at_ms: 0, tpus: new Map(), unreachable: []};

/** The workers that are not gone. */
export const LIVING: Filter = {
  field: 'phase',
  op: 'in',
  value: ['creating', 'booting', 'idle', 'working', 'draining', 'deleting'],
};

/** A fleet of more workers than this waits for the tick: reading it for every stream that is dropped costs more than a minute. */
const MOST_AT_ONCE = 32;

/** After work came in: asks for the TPUs it wants without waiting for the tick, and concludes nothing about any other. */
export async function lookForWork(deps: Deps): Promise<void> {
  if ((await deps.store.count('workers', [LIVING])) > MOST_AT_ONCE) return;
  const fleet = await readFleet(deps);
  const first = await planSlots(deps, fleet);
  const isNew = [...first.wanted].some(name => !fleet.workers.has(name));
  // A slot without a document may have a node all the same, if the Store was lost.
  const plan = isNew ? await planSlots(deps, await adoptUnknown(deps, fleet)) : first;
  const slots = [...plan.wanted].flatMap(name => slotOf(name, 'wanted', plan.workers));
  await lookAtSlots(deps, NOT_LOOKED, slots, plan);
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

/** Whether there is, or may be, a node of ours, whatever documents say. */
export async function isAnyNodeLeft(deps: Deps): Promise<boolean> {
  const {tpus, unreachable} = await lookAtNodes(deps);
  return managed(tpus).some(name => parseWorkerName(name)) || (await isBlind(deps, unreachable));
}

/** A zone that does not answer may hide a node that no document knows, also when the pool has left it: all that it ever had count. */
export async function isBlind(deps: Deps, unreachable: readonly string[]): Promise<boolean> {
  if (unreachable.length === 0) return false;
  const {zones} = await readPool(deps);
  const asked = await deps.store.query('zones');
  const ours = new Set([...zones, ...deps.config.pool.zones, ...asked.map(({id}) => id)]);
  return unreachable.some(zone => ours.has(zone));
}

async function adoptUnknown(deps: Deps, fleet: Fleet): Promise<Fleet> {
  return adoptNodes(deps, await lookAtNodes(deps), fleet);
}

/**
 * Makes the document again of each of our nodes that has none, or one that nobody can read: the Store was lost or edited, and what the
 * node is doing is worth more than a new one. If it is not wanted, or not well, the same look finds that out.
 */
export async function adoptNodes(deps: Deps, look: Look, {workers, broken}: Fleet): Promise<Fleet> {
  const all = new Map(workers);
  const unknown = [...look.tpus.values()].flatMap(tpu => {
    const place = parseWorkerName(tpu.name);
    const incarnation = Math.max(...incarnationsOf(tpu));
    if (all.has(tpu.name) || !isManaged(tpu)) return [];
    return place?.zone === tpu.zone && incarnation >= 0 ? [{tpu, place, incarnation}] : [];
  });
  if (unknown.length === 0) return {workers, broken};
  const [pool, prices] = [await readPool(deps), await readPrices(deps)];
  await abreast(unknown, async ({tpu, place, incarnation}) => {
    const usd_per_hour = priceOf(prices, pool, place.zone);
    const adopted = await deps.store.transaction(async tx => {
      const known = await unlessBroken(deps, () => workerRecords.get(tx, tpu.name));
      if (known) return known;
      const now = deps.now();
      const ready_at = tpu.state === 'READY' ? tpu.created_at : null;
      const fresh = {...newWorker(tpu.name, place, now), usd_per_hour};
      const provisioning = tpu.queued ? 'queued-resource' : 'node';
      const valid_until_at = tpu.queued?.valid_until_at ?? null;
      const life = {incarnation, ready_at, provisioning, valid_until_at} as const;
      const worker = adoptNode(fresh, life, iso(look.at_ms));
      workerRecords.set(tx, worker);
      const text = `${tpu.name} is ${tpu.state ?? tpu.queued?.state} and no document that can be read knows it: it goes on as incarnation ${incarnation}`;
      tell(tx, {kind: 'worker', worker: tpu.name, text}, now);
      return worker;
    });
    all.set(tpu.name, adopted);
  });
  return {workers: all, broken: new Set([...broken].filter(name => !all.has(name)))};
}

/** Decides about every slot that has a worker or should have one; true while any is not gone. */
export async function lookAtWorkers(deps: Deps, look: Look, fleet: Fleet): Promise<boolean> {
  const {workers, broken} = fleet;
  const plan = await planSlots(deps, fleet);
  const {wanted, dismissed} = plan;
  for (const [name, worker] of workers)
    if (isUnheard(worker, deps.config.lease_s, deps.now())) wanted.add(name);
  const slots: Slot[] = [];
  for (const name of new Set([...workers.keys(), ...wanted, ...managed(look.tpus)])) {
    if (broken.has(name)) continue;
    const need = dismissed.has(name) ? 'dismissed' : wanted.has(name) ? 'wanted' : 'unwanted';
    slots.push(...slotOf(name, need, workers));
  }
  const busy = await lookAtSlots(deps, look, slots, plan);
  return busy || [...broken].some(name => look.tpus.has(name));
}

/** At which price is made what is to be made, and for which run; what `made_at_ms` did not know of may be spent or finished since. */
type Plan = {prices: Prices; payers: ReadonlyMap<string, string>; made_at_ms: number};

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
  const {open, fixed} = await whatIsLeft(deps, pool);
  const now = deps.now();
  const streams = open.reduce((sum, {streams}) => sum + streams, 0);
  const allowances = new Map(zones.map(zone => [zone.zone, allowance(zone, deps.config.placement, now)]));
  const out = new Set([...broken, ...dismissed]);
  const isFixed = new Set(fixed.keys());
  const wanted = wantedSlots(pool, workers, streams, now, {broken: out, allowances, fixed: isFixed});
  return {made_at_ms, workers, dismissed, prices, wanted, payers: payersFor(wanted, workers, open, fixed)};
}

/** Nodes with our label, whether or not a document knows them: a lost database must not leave a TPU behind. */
function managed(tpus: ReadonlyMap<string, Tpu>): string[] {
  return [...tpus.values()].filter(isManaged).map(tpu => tpu.name);
}

function isManaged({labels, queued}: Tpu): boolean {
  return [labels, queued?.labels ?? labels].every(given => given['managed-by'] === MANAGED['managed-by']);
}

/**
 * What a look shows of a slot. A look from before the slot entered its phase, or before another one saw something new, says
 * nothing about it: the node may have come or gone since.
 */
function observe(look: Look, worker: Worker): Observation {
  const {phase_since_at, provider_since_at} = worker;
  if (look.at_ms < Math.max(msOf(phase_since_at), msOf(provider_since_at ?? phase_since_at)))
    return {kind: 'unknown'};
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
type Slot = {name: string; place: Place; wanted: Wanted; seen: Worker | undefined};

/** Nothing for a node of ours whose name no slot can have. */
function slotOf(name: string, wanted: Wanted, workers: ReadonlyMap<string, Worker>): Slot[] {
  const place = parseWorkerName(name);
  return place ? [{name, place, wanted, seen: workers.get(name)}] : [];
}

/** Slots that are decided about in one transaction. */
const MOST_SLOTS = 50;

/**
 * Decides about slots; true while any is not gone. Most have nothing new to them, as what was read of them already shows, and are
 * let be. Of the others, those that change one document together take turns, many in a transaction.
 */
async function lookAtSlots(deps: Deps, look: Look, slots: readonly Slot[], plan: Plan): Promise<boolean> {
  const now = deps.now();
  let busy = false;
  const turns = new Map<string, Slot[]>();
  for (const slot of slots) {
    const before = slot.seen ?? newWorker(slot.name, slot.place, now);
    const decision = decideWorker(before, observe(look, before), slot.wanted, deps.config.limits, now);
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

/** Decides about slots by what they are now; true while any is not gone. */
async function decideSlots(
  deps: Deps,
  look: Look,
  slots: readonly Slot[],
  {prices, payers, made_at_ms}: Plan,
): Promise<boolean> {
  const actions: WorkerAction[] = [];
  const {isAnyLeft, freed} = await deps.store.transaction(async tx => {
    const now = deps.now();
    actions.length = 0;
    const current = await Promise.all(slots.map(slot => readSlot(tx, slot, now)));
    const changed = current
      .filter(({slot, worker}) => stillHolds(slot, worker))
      .map(({slot, worker}) => {
        const seen = observe(look, worker);
        return {before: worker, ...decideWorker(worker, seen, slot.wanted, deps.config.limits, now)};
      })
      .filter(({before, worker}) => worker !== before);
    const streams = await Promise.all(
      changed.map(({before, worker}) =>
        hasEnded(worker) && !hasEnded(before) ? workOf(deps, tx, before) : undefined,
      ),
    );
    const zones = await readZones(
      tx,
      changed.filter(decision => changeOf(decision.before, decision)).map(({before}) => before.zone),
      now,
    );
    const isAnyAsked = changed.some(decision => changeOf(decision.before, decision) === 'asked');
    const pool = isAnyAsked ? await readPool(deps) : undefined;
    const over = changed.filter(decision => isOver(decision.before, decision));
    const bills = await billsFor(
      deps,
      tx,
      over.map(({worker}) => worker),
      now,
    );
    const touched = new Set<string>();
    const left = new Map(current.map(({worker}) => [worker.name, worker]));
    for (const [index, {before, ...decision}] of changed.entries()) {
      const change = changeOf(before, decision);
      const zone = zones.get(before.zone);
      // Asked here again, because another look may have asked the zone, or spent the money, since the slots were chosen.
      const isLate = now - made_at_ms > PLAN_LASTS_MS;
      const isAsked = change === 'asked' || change === 'asked again';
      if (zone && isAsked && (isLate || allowance(zone, deps.config.placement, now) === 0)) continue;
      const ask = pool && zone && change === 'asked' ? termsOf(deps, pool, zone, prices, now) : {};
      const payer = change === 'asked' ? {charged_to: payers.get(before.name) ?? null} : {};
      if (zone && change) {
        const next = zoneAfter(deps, zone, change, before, decision.death, now);
        zones.set(zone.zone, next);
        touched.add(zone.zone);
        const [was, is] = [
          rateOf(zone, deps.config.placement, now),
          rateOf(next, deps.config.placement, now),
        ];
        const text = `${zone.zone} is asked for nodes at the rate "${is}", not "${was}": of its last ${next.losses.length} losses, the last lived ${next.losses.at(-1)?.lived_s} s`;
        if (was !== is) tell(tx, {kind: 'worker', worker: before.name, text}, now);
      }
      const worker = {...decision.worker, ...ask, ...payer, updated_at: iso(now)};
      workerRecords.set(tx, worker);
      left.set(worker.name, worker);
      const stream = streams[index];
      if (hasEnded(worker) && !hasEnded(before)) recordAttempt(tx, before, decision, now);
      const free = stream && freeFromDead(stream, worker.name, decision.death, now);
      if (free) streamRecords.set(tx, free);
      if (free?.status === 'failed')
        tell(tx, {kind: 'stream', ...leaseOf(free), text: parkedText(free)}, now);
      const about = {kind: 'worker', worker: worker.name, ...(stream ? leaseOf(stream) : {})} as const;
      for (const text of decision.events) tell(tx, {...about, text}, now);
      actions.push(...decision.actions);
    }
    for (const name of touched) {
      const zone = zones.get(name);
      if (zone) zoneRecords.set(tx, zone);
    }
    bills();
    const isAnyLeft = [...left.values()].some(({phase}) => phase !== 'gone');
    return {isAnyLeft, freed: streams.filter(stream => stream !== undefined)};
  });
  await publishActions(deps, actions);
  // Shards whose events are still under way count before anybody else is given the stream.
  await abreast(freed, ({run, stream}) => unlessBroken(deps, () => advanceStream(deps, run, stream)));
  return isAnyLeft;
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

async function readZones(tx: Transaction, names: readonly string[], now: number): Promise<Map<string, Zone>> {
  const zones = await Promise.all(
    [...new Set(names)].map(async name => (await zoneRecords.get(tx, name)) ?? newZone(name, now)),
  );
  return new Map(zones.map(zone => [zone.zone, zone]));
}

/** How a node is asked for, and at what price. */
function termsOf(deps: Deps, pool: Pool, zone: Zone, prices: Prices, now: number) {
  const usd_per_hour = priceOf(prices, pool, zone.zone);
  return {...askOf(pool.provisioning, zone, deps.config.placement, now), usd_per_hour};
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
  return death !== undefined && death.kind !== 'asked' && isAlive(before) ? 'lost' : undefined;
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
    case 'asked again':
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

function leaseOf({run, stream, epoch}: Stream) {
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
