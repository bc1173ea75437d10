/** The fleet: which slots should have a TPU, and every node of ours that no document knows. */
import {payersFor} from '../core/cost.ts';
import {allowance} from '../core/placement.ts';
import {type Pool, slotsOf, wantedSlots} from '../core/pool.ts';
import {isOlderThan} from '../core/time.ts';
import type {Worker} from '../core/worker.ts';
import type {Filter, Tpu} from '../ports.ts';
import {abreast} from './abreast.ts';
import type {Deps} from './deps.ts';
import {type Accounts, holdTheSpent, readPrices} from './money.ts';
import {type Look, lookAtNodes, managed, NOT_LOOKED} from './nodes.ts';
import {keepOrdersOf} from './orders.ts';
import {heldOrphans, orphansIn} from './orphans.ts';
import {knownPool} from './pools.ts';
import {workerRecords, zoneRecords} from './records.ts';
import {openRuns, whatIsLeft} from './runs.ts';
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
  const fleet = await readFleet(deps);
  const first = await planSlots(deps, fleet);
  const isNew = [...first.wanted].some(name => !fleet.workers.has(name));
  // A slot without a document may have a node all the same, if the Store was lost.
  const plan = isNew ? await planAfterLook(deps, fleet) : first;
  const slots = [...plan.wanted].flatMap(name => slotOf(name, 'wanted', plan.workers));
  await lookAtSlots(deps, NOT_LOOKED, slots, plan);
  await keepOrdersOf(deps, plan.held);
}

/** The workers as documents say, what they cost, and the slots whose document cannot be read. */
export type Fleet = Accounts & {broken: ReadonlySet<string>};

export async function readFleet(deps: Deps): Promise<Fleet> {
  const {spent_usd} = await knownPool(deps);
  const runs = await openRuns(deps);
  const broken = new Set<string>();
  const parsed = workerRecords.parseAll(await deps.store.query('workers'), (error, name) => {
    broken.add(name);
    deps.log('ERROR', error.message);
  });
  return {workers: new Map(parsed.map(worker => [worker.name, worker])), broken, runs, spent_usd};
}

async function planAfterLook(deps: Deps, fleet: Fleet) {
  const look = await lookAtNodes(deps);
  return planSlots(deps, fleet, look);
}

/** Decides about every slot that has a worker or should have one; busy while any is not gone. `held`: see `holdTheSpent`. */
export async function lookAtWorkers(
  deps: Deps,
  look: Look,
  fleet: Fleet,
): Promise<{busy: boolean; held: string[]}> {
  const {workers, broken} = fleet;
  const areStraysLeft = await sweepStrays(deps, look);
  const plan = await planSlots(deps, fleet, look);
  const {wanted, dismissed, held} = plan;
  const orphans = await heldOrphans(deps, look, fleet, plan);
  const slots: Slot[] = [];
  for (const name of new Set([...workers.keys(), ...wanted, ...managed(look.tpus)])) {
    if (broken.has(name) || orphans.has(name)) continue;
    const need = dismissed.has(name) ? 'dismissed' : wanted.has(name) ? 'wanted' : 'unwanted';
    slots.push(...slotOf(name, need, workers));
  }
  const areSlotsLeft = await lookAtSlots(deps, look, slots, plan);
  const isAnyHeld = orphans.size > 0 || [...broken].some(name => look.tpus.has(name));
  return {busy: areSlotsLeft || areStraysLeft || isAnyHeld, held};
}

/** Deletes every node of ours without a document, however many there are: a person said so. */
export async function deleteOrphans(deps: Deps, look: Look, fleet: Fleet): Promise<void> {
  const plan = await planSlots(deps, fleet, look);
  const names = orphansIn(look, fleet.workers).filter(name => !fleet.broken.has(name));
  await lookAtSlots(
    deps,
    look,
    names.flatMap(name => slotOf(name, 'unwanted', fleet.workers)),
    plan,
  );
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

/**
 * The slots that should have a TPU, and those that must not keep theirs another minute. The streams are counted after the
 * workers were read, so that each worker that is there for a stream finds it counted.
 */
async function planSlots(deps: Deps, fleet: Fleet, look?: Look) {
  const {workers, broken} = fleet;
  const made_at_ms = deps.now();
  const pool = await knownPool(deps);
  const prices = await readPrices(deps, pool);
  const {dismissed, pays, held} = await holdTheSpent(deps, pool, prices, fleet);
  const zones = zoneRecords.parseAll(await deps.store.query('zones'), error =>
    deps.log('ERROR', error.message),
  );
  const {open, fixed} = await whatIsLeft(deps, pool);
  const now = deps.now();
  const streams = open.reduce((sum, {streams}) => sum + streams, 0);
  const allowances = new Map(zones.map(zone => [zone.zone, allowance(zone, deps.config.placement, now)]));
  const hidden = look ? [...hiddenSlots(deps, pool, workers, look, now), ...orphansIn(look, workers)] : [];
  const out = new Set([...broken, ...dismissed, ...hidden]);
  const wanted = wantedSlots(pool, workers, streams, now, {broken: out, allowances, fixed});
  const payers = payersFor(wanted, workers, open, fixed, pays);
  for (const [name, run] of payers) if (run === null) wanted.delete(name);
  return {made_at_ms, workers, dismissed, held, pool, prices, zones, wanted, payers};
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
