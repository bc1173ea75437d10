/** Why work waits that has fewer TPUs than it needs. */
import {JOBS, KEPT, payerOf, runAtWork} from '../billing/cost.ts';
import {isEmptySlot, slotsOf} from '../fleet/slots.ts';
import {parseWork, parseWorkerName} from '../names.ts';
import {type Constraint, constraint, dominant, shortText} from '../records/constraint.ts';
import {hasEnded, type Worker} from '../records/worker.ts';
import {msOf} from '../time.ts';
import {isForeign} from '../worker/nodes.ts';
import {queueStanding} from '../worker/provider-states.ts';
import {leavingConstraint, tpuConstraint, type Usual} from '../worker/tpu-constraint.ts';
import type {Allowance} from '../zone/placement.ts';
import type {Snapshot} from './snapshot.ts';
import {type Demand, whyStands} from './work.ts';

/** `wanted`: slots for the work. `withheld`: slots that the plan may not use. `limits`: creates that each zone allows. */
export type Fleet = {
  snapshot: Snapshot;
  silent: ReadonlySet<string>;
  wanted: ReadonlySet<string>;
  withheld: ReadonlyMap<string, Constraint>;
  limits: ReadonlyMap<string, Allowance>;
  now: number;
};

/** `payers`: only for work that was served. `usual`: usual times of the pool. `atWork`: runs with a TPU at work. */
export type Facts = Fleet & {
  payers: ReadonlyMap<string, string | null>;
  usual: Usual;
  atWork: ReadonlySet<string | undefined>;
};

/**
 * `slots`: those that the work has or gets, without its TPUs at work. `refusal`: why a budget refuses a further slot. `ahead`: work that is
 * served earlier and waits too.
 */
export type Share = {slots: readonly string[]; refusal: Constraint | undefined; ahead: Demand | undefined};

export function factsOf(fleet: Fleet, payers: Facts['payers']): Facts {
  const workers = [...fleet.snapshot.workers.values()];
  const create = medianText(workers.map(({born_at, ready_at}) => [born_at, ready_at]));
  const boot = medianText(workers.map(({ready_at, agent_at}) => [ready_at, agent_at]));
  return {...fleet, payers, usual: {create, boot}, atWork: new Set(workers.map(runAtWork))};
}

/** The TPU that comes first, if nothing else is missing; otherwise the budget, earlier work, the pool, or its slots. */
export function whyWaiting({payer, waiting}: Demand, share: Share, fleet: Facts): Constraint | undefined {
  if (waiting === 0) return undefined;
  const {pool, workers} = fleet.snapshot;
  const coming = comingTpus(share.slots, fleet);
  const gang = payer === JOBS ? ofFirstGang(coming, fleet) : undefined;
  const next = coming.find(({kind}) => kind === 'idle' || kind === 'coming') ?? dominant(coming);
  const nearest = next?.kind === 'idle' ? (gang ?? next) : next;
  if (nearest && (!fleet.atWork.has(payer) || waiting <= coming.length)) return nearest;
  if (share.refusal) return share.refusal;
  if (share.ahead) return behind(share.ahead.payer, fleet);
  if (pool.zones.length === 0)
    return constraint('ceiling', `no zone of pool ${pool.pool}`, 'GLEANER_ALLOWED_ZONES');
  if (pool.workers_per_zone === 0) return constraint('no-slot', pool.pool);
  // During its pause the job asks for no TPU, whatever the zone gives.
  if (gang?.next_try_at) return gang;
  const blocked = slotsOf(pool)
    .filter(({name}) => isEmptySlot(workers.get(name)))
    .flatMap(({name}) => fleet.withheld.get(name) ?? foreignNode(name, fleet) ?? [])
    // The constraint of the job that reserves a slot is more precise.
    .filter(({kind}) => kind !== 'slices' || !gang);
  return dominant(blocked) ?? nearest ?? gang ?? ofFullPool(payer, fleet);
}

/** Why each slot has no TPU at work yet, starting with the TPU that will be ready first. */
function comingTpus(slots: readonly string[], fleet: Facts): Constraint[] {
  const {snapshot, silent, limits, usual, now} = fleet;
  const inOrder = slots
    .map(name => ({name, worker: snapshot.workers.get(name)}))
    .sort((a, b) => distanceOf(a.worker) - distanceOf(b.worker));
  return inOrder.flatMap(({name, worker}) => {
    const limit = limits.get(parseWorkerName(name)?.zone ?? '')?.why;
    if (worker && !isEmptySlot(worker))
      return whyStands(worker, silent, snapshot) ?? tpuConstraint(worker, limit, now, usual) ?? [];
    return foreignNode(name, fleet) ?? limit ?? constraint('coming', name, 'it is being created');
  });
}

/** Steps until the TPU works: an idle one is nearer than a boot, a create and a request in a queue. */
function distanceOf(worker: Worker | undefined): number {
  if (worker && queueStanding(worker) === 'waiting') return 3;
  return worker?.phase === 'booting' ? 1 : worker && !['creating', 'gone'].includes(worker.phase) ? 0 : 2;
}

function foreignNode(name: string, {snapshot: {nodes}}: Fleet): Constraint | undefined {
  const tpu = nodes?.tpus.get(name);
  if (!nodes || !tpu || !isForeign(tpu, nodes.deployment)) return undefined;
  return constraint('slot-blocked', name, 'there is a node of its name that is not ours');
}

/** `usually 2.5 min`, below 100 seconds `usually 40 s`: the median of the finished spans; null without one. */
function medianText(spans: [string | null, string | null][]): string | null {
  const seconds = spans.flatMap(([from, to]) =>
    from === null || to === null ? [] : Math.max(0, msOf(to) - msOf(from)) / 1000,
  );
  const median = seconds.sort((a, b) => a - b)[Math.floor(seconds.length / 2)];
  if (median === undefined) return null;
  return median < 100 ? `usually ${Math.ceil(median)} s` : `usually ${(median / 60).toFixed(1)} min`;
}

/** The slices that the first waiting job still needs, and why the next one is missing; undefined if the job needs only one slice. */
function ofFirstGang(coming: readonly Constraint[], {now, snapshot: {pool, workers, jobs}}: Fleet) {
  const [job] = jobs?.first ?? [];
  if (!job || job.slices === 1) return undefined;
  const {workers_per_zone: slots} = pool;
  if (job.slices > slots)
    return constraint(
      'slices',
      `job ${job.job}`,
      `it needs ${job.slices} of them, and pool ${pool.pool} has ${slots} in each: scale it`,
    );
  const idle = [...workers.values()].filter(({phase, work}) => phase === 'idle' && work === null);
  const groups = pool.zones.map(zone => ({zone, idle: idle.filter(each => each.zone === zone).length}));
  const [best] = groups.sort((a, b) => b.idle - a.idle);
  const missing = dominant(coming.filter(({kind}) => kind !== 'idle'));
  const ready = `${best?.idle ?? 0} of ${job.slices} slices of pool ${pool.pool} are idle in ${best?.zone}`;
  const {count = 0, next_at = null} = job.reservation_timeouts[best?.zone ?? ''] ?? {};
  const timeouts = `slices there waited for others too long, ${count === 1 ? 'once' : `${count} times`}`;
  const evidence = [ready, ...(count > 0 ? [timeouts] : []), ...(missing ? [shortText(missing)] : [])];
  const next_try_at = next_at !== null && msOf(next_at) > now ? next_at : null;
  return constraint('slices', `job ${job.job}`, evidence.join('; '), {next_try_at});
}

/** Every slot has a TPU that does other work or is being removed. */
function ofFullPool(payer: string, fleet: Facts): Constraint {
  const {workers, pool} = fleet.snapshot;
  const slots = slotsOf(pool).length;
  const all = payersOfSlots(fleet);
  if (all.length < slots) {
    const leaving = [...workers.values()].find(
      worker => worker.phase !== 'gone' && (hasEnded(worker) || worker.phase === 'draining'),
    );
    const free = leaving ? undefined : soonFree(fleet);
    if (leaving) return leavingConstraint(leaving);
    if (free)
      return constraint(
        'idle',
        free.name,
        `it finishes its present shard of ${free.work}, whose run is not active`,
      );
  }
  const countOf = (one: string) => all.filter(each => each === one).length;
  const [most] = [...new Set(all)].filter(one => one !== payer).sort((a, b) => countOf(b) - countOf(a));
  if (most !== undefined && countOf(payer) === 0 && payer !== JOBS) return behind(most, fleet);
  const evidence =
    most !== undefined && countOf(payer) === 0
      ? `${all.length} at work on streams; one gives its stream back when a job has waited for ${pool.job_wait_s} s`
      : `${countOf(payer)} of ${slots} do this work`;
  return constraint('pool-full', pool.pool, evidence);
}

/** Payer of each slot with a living TPU, or one that the plan creates, except for TPUs kept without work. */
function payersOfSlots({payers, snapshot: {pool, workers}}: Facts): string[] {
  return slotsOf(pool).flatMap(({name}) => {
    const worker = workers.get(name);
    const payer = payers.get(name) ?? (worker && !hasEnded(worker) ? payerOf(worker) : null);
    return payer === null || payer === KEPT ? [] : payer;
  });
}

/** The TPU that the work waits for: it still finishes a stream of a run that was paused or has ended, so the plan creates no other. */
function soonFree({silent, snapshot: {runs, unreadable_runs, workers}}: Fleet): Worker | undefined {
  const active = new Set([
    ...runs.flatMap(({run, status}) => (status === 'active' ? run : [])),
    ...unreadable_runs,
  ]);
  return [...workers.values()].find(worker => {
    const run = worker.phase === 'working' ? parseWork(worker.work)?.run : undefined;
    return run !== undefined && !active.has(run) && !silent.has(worker.name);
  });
}

function behind(payer: string, {snapshot: {pool, runs}}: Fleet): Constraint {
  if (payer === JOBS) return constraint('behind', `jobs of pool ${pool.pool}`);
  const priority = runs.find(({run}) => run === payer)?.priority ?? 0;
  return constraint('behind', `run ${payer}`, `its priority is ${priority}`);
}

/** Why the zones of the pool fill no further slot. A constraint of one slot proves nothing about its zone. */
export function zoneWaits({snapshot: {pool}, withheld, limits}: Fleet): Map<string, Constraint> {
  return new Map(
    pool.zones.flatMap(zone => {
      const inZone = slotsOf(pool).filter(slot => slot.zone === zone);
      const ofSlots = inZone.flatMap(({name}) => {
        const why = withheld.get(name);
        return why && !why.about.includes(name) ? why : [];
      });
      const ofZone = limits.get(zone)?.why;
      const why = dominant(ofZone ? [...ofSlots, ofZone] : ofSlots);
      return why ? [[zone, why] as const] : [];
    }),
  );
}
