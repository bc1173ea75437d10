/** The fleet: which slots should have a TPU, and every node of ours that no document knows. */
import {heardByZone} from '../core/brake.ts';
import {isStopped, mayBoot} from '../core/breakers.ts';
import {payersFor} from '../core/cost.ts';
import {allowance, type Zone} from '../core/placement.ts';
import {livingAmong, type Pool, slotsOf, wantedSlots} from '../core/pool.ts';
import {NEVER_SERVED, type Served} from '../core/served.ts';
import {isOlderThan} from '../core/time.ts';
import type {Worker} from '../core/worker.ts';
import type {Filter, Tpu} from '../ports.ts';
import {abreast} from './abreast.ts';
import type {Deps} from './deps.ts';
import {Failures} from './failures.ts';
import {type Accounts, holdTheSpent, readPrices, spentThisMonth} from './money.ts';
import {type Look, lookAtNodes, lookForMissing, managed, NOT_LOOKED} from './nodes.ts';
import {keepOrdersOf} from './orders.ts';
import {heldOrphans, orphansIn} from './orphans.ts';
import {knownPool} from './pools.ts';
import {createsRecords, servedRecord, unlessBroken, workerRecords, zoneRecords} from './records.ts';
import {openRuns, whatIsLeft} from './runs.ts';
import {findLost, heedHellos, proveService, reportHeld} from './service.ts';
import {lookAtSlots, type Slot, slotOf} from './slots.ts';
import {tellAlone} from './timeline.ts';

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
 * The workers as documents say, what they cost, and the slots whose document cannot be read. `creates`: how many nodes were ever asked
 * for just before.
 */
export type Fleet = Accounts & {broken: ReadonlySet<string>; creates: number};

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
  return planSlots(deps, fleet, failures, {look});
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
  const found = await failures.isolate('find orphans', () => heldOrphans(deps, look, fleet, plan));
  const orphans = found ?? new Set(orphansIn(look, workers));
  const slots: Slot[] = [];
  for (const name of new Set([...workers.keys(), ...wanted, ...managed(look.tpus)])) {
    if (broken.has(name) || orphans.has(name)) continue;
    const need = dismissed.has(name) ? 'dismissed' : wanted.has(name) ? 'wanted' : 'unwanted';
    slots.push(...slotOf(name, need, workers));
  }
  const seen = await lookForMissing(deps, look, workers, moment);
  const lost = await failures.isolate('find lost workers', () => findLost(deps, workers, moment));
  const all = {...plan, ...(lost ? {lost} : {})};
  const decided = await lookAtSlots(deps, seen, slots, all, failures);
  const areStraysLeft = await sweepStrays(deps, look);
  await failures.isolate('report held workers', () => reportHeld(deps, zones ?? [], decided.held));
  const isAnyHeld = orphans.size > 0 || [...broken].some(name => look.tpus.has(name));
  return {busy: decided.busy || areStraysLeft || isAnyHeld, held, served};
}

/** Deletes every node of ours without a document, however many there are: a person said so. */
export async function deleteOrphans(deps: Deps, look: Look, fleet: Fleet): Promise<void> {
  const failures = new Failures(deps);
  const plan = await planSlots(deps, fleet, failures, {look});
  const names = orphansIn(look, fleet.workers).filter(name => !fleet.broken.has(name));
  const slots = names.flatMap(name => slotOf(name, 'unwanted', fleet.workers));
  await lookAtSlots(deps, look, slots, plan, failures);
  failures.rethrow();
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
    const zones = known.zones ?? (await readZones(deps));
    return {zones, ...(await whatIsLeft(deps, pool))};
  });
  // Without the count no TPU is asked for, and none goes because it has no work.
  if (!counted) {
    const zones = known.zones ?? [];
    return {...base, zones, wanted: livingOf(workers), payers: new Map<string, string | null>()};
  }
  const {open, fixed, zones} = counted;
  const {look} = known;
  const now = deps.now();
  const streams = open.reduce((sum, {streams}) => sum + streams, 0);
  const allowances = new Map(zones.map(zone => [zone.zone, createsIn(deps, pool, zone, now)]));
  const hidden = look ? [...hiddenSlots(deps, pool, workers, look, now), ...orphansIn(look, workers)] : [];
  const out = new Set([...broken, ...dismissed, ...hidden]);
  const most = deps.config.ceilings.max_workers - broken.size;
  const wanted = wantedSlots(pool, workers, streams, now, {broken: out, allowances, fixed, most});
  const payers = payersFor(wanted, workers, open, fixed, pays);
  for (const [name, run] of payers) if (run === null) wanted.delete(name);
  return {...base, zones, mostCreates: fleet.creates + most - livingAmong(workers), wanted, payers};
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
