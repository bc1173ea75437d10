/** The fleet: which slots should have a TPU, and every node of ours that no document knows. */
import {heardByZone} from '../core/brake.ts';
import {isStopped, mayBoot} from '../core/breakers.ts';
import {payersFor} from '../core/cost.ts';
import {parseWorkerName} from '../core/names.ts';
import {allowance, type Zone} from '../core/placement.ts';
import {livingAmong, type Pool, slotsOf, wantedSlots} from '../core/pool.ts';
import {NEVER_SERVED, type Served} from '../core/served.ts';
import {isOlderThan, iso} from '../core/time.ts';
import {adoptNode, isUnheard, newWorker, type Worker} from '../core/worker.ts';
import {TpuError} from '../errors.ts';
import type {Filter, Tpu} from '../ports.ts';
import {abreast} from './abreast.ts';
import type {Deps} from './deps.ts';
import {Failures} from './failures.ts';
import {type Accounts, holdTheSpent, priceOf, readPrices, spentThisMonth} from './money.ts';
import {
  incarnationsOf,
  isManaged,
  type Look,
  lookAtNodes,
  lookForMissing,
  managed,
  NOT_LOOKED,
} from './nodes.ts';
import {keepOrdersOf} from './orders.ts';
import {knownPool} from './pools.ts';
import {createsRecords, servedRecord, unlessBroken, workerRecords, zoneRecords} from './records.ts';
import {openRuns, whatIsLeft} from './runs.ts';
import {findLost, heedHellos, proveService, reportHeld} from './service.ts';
import {lookAtSlots, type Slot, slotOf} from './slots.ts';
import {tell, tellAlone} from './timeline.ts';

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
  const failures = new Failures(deps);
  const fleet = await readFleet(deps);
  const first = await planSlots(deps, fleet, failures);
  const isNew = [...first.wanted].some(name => !fleet.workers.has(name));
  // A slot without a document may have a node all the same, if the Store was lost.
  const plan = isNew ? await planAfterLook(deps, fleet, failures) : first;
  const isEmpty = (name: string) => (plan.workers.get(name)?.phase ?? 'gone') === 'gone';
  const slots = [...plan.wanted].filter(isEmpty).flatMap(name => slotOf(name, 'wanted', plan.workers));
  await lookAtSlots(deps, NOT_LOOKED, slots, plan, failures);
  await failures.isolate('keep the orders of paused runs', () => keepOrdersOf(deps, plan.held));
  failures.rethrow();
}

/**
 * The workers as documents say, what they cost, and the slots whose document cannot be read. `isPartial`: a node may be at work that
 * no document knows. `creates`: how many nodes were ever asked for just before.
 */
export type Fleet = Accounts & {broken: ReadonlySet<string>; creates: number; isPartial?: boolean};

export async function readFleet(deps: Deps): Promise<Fleet> {
  const {spent_usd} = await knownPool(deps);
  const month = await spentThisMonth(deps);
  const {creates} = (await unlessBroken(deps, () => createsRecords.get(deps.store))) ?? {creates: 0};
  const runs = await openRuns(deps);
  const broken = new Set<string>();
  const parsed = workerRecords.parseAll(await deps.store.query('workers'), (error, name) => {
    broken.add(name);
    deps.log('ERROR', error.message);
  });
  return {
    workers: new Map(parsed.map(worker => [worker.name, worker])),
    broken,
    creates,
    runs,
    spent_usd,
    month,
  };
}

async function planAfterLook(deps: Deps, fleet: Fleet, failures: Failures) {
  const look = await lookAtNodes(deps);
  return planSlots(deps, await adoptNodes(deps, look, fleet), failures, {look});
}

/**
 * Makes the document again of each of our nodes that has none, or one that nobody can read: the Store was lost or edited, and what the
 * node is doing is worth more than a new one. If it is not wanted, or not well, the same look finds that out.
 */
export async function adoptNodes(deps: Deps, look: Look, fleet: Fleet): Promise<Fleet> {
  const {workers, broken} = fleet;
  const all = new Map(workers);
  const unknown = [...look.tpus.values()].flatMap(tpu => {
    const place = parseWorkerName(tpu.name);
    const incarnation = Math.max(...incarnationsOf(tpu));
    if (all.has(tpu.name) || !isManaged(tpu)) return [];
    return place && incarnation >= 0 ? [{tpu, place, incarnation}] : [];
  });
  if (unknown.length === 0) return fleet;
  const pool = await knownPool(deps);
  const prices = await readPrices(deps, pool);
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
  return {...fleet, workers: all, broken: new Set([...broken].filter(name => !all.has(name)))};
}

/**
 * Adopts the nodes of a lost Store, before a message about this worker is obeyed. While its zone does not answer, nobody knows whether
 * it is there, and the message comes again.
 */
export async function adoptUnknown(deps: Deps, worker: string): Promise<void> {
  const look = await lookAtNodes(deps);
  const zone = parseWorkerName(worker)?.zone;
  if (zone !== undefined && look.unreachable.includes(zone))
    throw new TpuError('transient', zone, `${zone} does not say whether ${worker} is there`);
  await adoptNodes(deps, look, await readFleet(deps));
}

/** Decides about every slot that has a worker or should have one; busy while any is not gone. `held`: see `holdTheSpent`. */
export async function lookAtWorkers(
  deps: Deps,
  look: Look,
  fleet: Fleet,
  failures: Failures,
): Promise<{busy: boolean; held: string[]; served: Served}> {
  const {workers, broken} = fleet;
  const served =
    (await failures.isolate('prove that worker-api works', () => proveService(deps, workers))) ??
    NEVER_SERVED;
  const moment = {now: deps.now(), served};
  const zones = await failures.isolate('read the zones', () => readZones(deps));
  await failures.isolate('hear first words', () => heedHellos(deps, zones ?? [], workers, moment));
  const plan = await planSlots(deps, fleet, failures, {look, served, ...(zones ? {zones} : {})});
  const {wanted, dismissed, held} = plan;
  for (const [name, worker] of workers)
    if (isUnheard(worker, deps.config.lease_s, deps.now())) wanted.add(name);
  const slots: Slot[] = [];
  for (const name of new Set([...workers.keys(), ...wanted, ...managed(look.tpus)])) {
    if (broken.has(name)) continue;
    const need = dismissed.has(name) ? 'dismissed' : wanted.has(name) ? 'wanted' : 'unwanted';
    slots.push(...slotOf(name, need, workers));
  }
  const seen = await lookForMissing(deps, look, workers, moment);
  const lost = await failures.isolate('find lost workers', () => findLost(deps, workers, moment));
  const all = {...plan, ...(lost ? {lost} : {})};
  const decided = await lookAtSlots(deps, seen, slots, all, failures);
  const areStraysLeft = await sweepStrays(deps, look);
  await failures.isolate('report held workers', () => reportHeld(deps, zones ?? [], decided.held));
  return {busy: decided.busy || areStraysLeft || [...broken].some(name => look.tpus.has(name)), held, served};
}

/** Deletes what has our label and no slot's name and zone: it can get no work, and costs. True while any is there. */
async function sweepStrays(deps: Deps, {strays}: Look): Promise<boolean> {
  const isGoing = ({state, queued}: Tpu) => (state ?? queued?.state) === 'DELETING';
  await abreast(
    strays.filter(stray => !isGoing(stray)),
    async ({name, zone}) => {
      const text = `${name} in ${zone} has our label, and no slot has its name there: deleting it`;
      try {
        await deps.tpus.delete(name, zone);
        await tellAlone(deps, {kind: 'worker', worker: name, text});
      } catch (error) {
        deps.log('ERROR', `${text}: ${(error as Error).message}`);
      }
    },
  );
  return strays.length > 0;
}

/** What a tick has read before it plans; an event reads zones and served time itself, and no list. */
type Known = {look?: Look; zones?: readonly Zone[]; served?: Served};

/**
 * The slots that should have a TPU, and those that must not keep theirs another minute. The streams are counted after the
 * workers were read, so that each worker that is there for a stream finds it counted.
 */
async function planSlots(deps: Deps, fleet: Fleet, failures: Failures, known: Known = {}) {
  const {workers, broken} = fleet;
  const made_at_ms = deps.now();
  const pool = await knownPool(deps);
  const prices = await readPrices(deps, pool);
  const {dismissed, pays, held} = await holdTheSpent(deps, pool, prices, fleet, failures);
  const heard = heardByZone(workers.values());
  const lost: ReadonlySet<string> = new Set();
  const served = known.served ?? (await servedRecord.get(deps.store));
  const base = {
    made_at_ms,
    mostCreates: fleet.creates,
    workers,
    dismissed,
    held,
    pool,
    prices,
    served,
    heard,
    lost,
  };
  const counted = await failures.isolate('count the work that is left', async () => {
    if (fleet.isPartial) return undefined;
    const zones = known.zones ?? (await readZones(deps));
    return {zones, ...(await whatIsLeft(deps, pool))};
  });
  // Without the count no TPU is asked for, and none goes because it has no work.
  if (!counted) return {...base, wanted: livingOf(workers), payers: new Map<string, string | null>()};
  const {open, fixed, zones} = counted;
  const {look} = known;
  const now = deps.now();
  const streams = open.reduce((sum, {streams}) => sum + streams, 0);
  const allowances = new Map(zones.map(zone => [zone.zone, createsIn(deps, pool, zone, now)]));
  const hidden = look ? hiddenSlots(deps, pool, workers, look, now) : [];
  const out = new Set([...broken, ...dismissed, ...hidden]);
  const most = deps.config.ceilings.max_workers - broken.size;
  const wanted = wantedSlots(pool, workers, streams, now, {broken: out, allowances, fixed, most});
  const payers = payersFor(wanted, workers, open, fixed, pays);
  for (const [name, run] of payers) if (run === null) wanted.delete(name);
  return {...base, mostCreates: fleet.creates + most - livingAmong(workers), wanted, payers};
}

async function readZones(deps: Deps): Promise<Zone[]> {
  return zoneRecords.parseAll(await deps.store.query('zones'), error => deps.log('ERROR', error.message));
}

/** How many nodes the zone may be asked for now, by what it refused and lost, and by the stops of creates. */
function createsIn({config}: Deps, pool: Pool, zone: Zone, now: number): number {
  const allowed = allowance(zone, config.placement, now);
  const {bundle} = config;
  if (!isStopped(pool.boots, bundle) && !isStopped(zone.boots, bundle)) return allowed;
  const isTime = mayBoot(pool.boots, bundle, now) && mayBoot(zone.boots, bundle, now);
  return Math.min(allowed, (zone.brake?.probes_due ?? 0) + (isTime ? 1 : 0));
}

function livingOf(workers: ReadonlyMap<string, Worker>): Set<string> {
  return new Set([...workers.values()].filter(({phase}) => phase !== 'gone').map(({name}) => name));
}

/**
 * A slot that no document knows may have a node where nobody could look: it is not asked for before somebody has. In a zone that does
 * not answer, an empty slot and one that nothing has come of for a while do not keep the work from another zone.
 */
function hiddenSlots(
  {config}: Deps,
  pool: Pool,
  workers: ReadonlyMap<string, Worker>,
  look: Look,
  now: number,
): string[] {
  const isHopeless = ({phase, provider_state, queue_state, asked_at}: Worker) => {
    if (phase === 'gone' || phase === 'deleting') return true;
    const isUnseen = provider_state === null && queue_state === null;
    return phase === 'creating' && isUnseen && isOlderThan(asked_at, config.limits.ask_again_s, now);
  };
  const isHidden = (name: string, zone: string) => {
    const worker = workers.get(name);
    if (!worker) return look === NOT_LOOKED || look.unreachable.includes(zone);
    return look.unreachable.includes(zone) && isHopeless(worker);
  };
  return slotsOf(pool).flatMap(({name, zone}) => (isHidden(name, zone) ? name : []));
}
