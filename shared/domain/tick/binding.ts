/** The binding constraint of each run, of the jobs and of each zone of a pool, from what its plan withholds. */
import {priceOf} from '../billing/budget.ts';
import {costOfDeleting, JOBS, KEPT, payerOf, runAtWork} from '../billing/cost.ts';
import {runAcceleratorProblem} from '../fleet/accelerators.ts';
import {slotsOf} from '../fleet/slots.ts';
import {parseWork} from '../names.ts';
import {type Constraint, constraint, dominant, shortText} from '../records/constraint.ts';
import type {Pool} from '../records/pool.ts';
import type {Run} from '../records/run.ts';
import {hasEnded, type Worker} from '../records/worker.ts';
import {byPreference} from '../stream/service-order.ts';
import {msOf} from '../time.ts';
import {isForeign} from '../worker/nodes.ts';
import {nodeStanding} from '../worker/provider-states.ts';
import {
  leavingConstraint,
  silentConstraint,
  standstillOf,
  tpuConstraint,
  type Usual,
} from '../worker/tpu-constraint.ts';
import type {Allowance} from '../zone/placement.ts';
import type {Budgets} from './budgets.ts';
import type {Snapshot} from './snapshot.ts';

/** `work`: by run, and by `JOBS`; work without a constraint moves. `zones`: of the slots that a zone does not fill. */
export type Constraints = {
  work: ReadonlyMap<string, Constraint>;
  zones: ReadonlyMap<string, Constraint>;
};

/** The decisions of a pool's plan: `hole` keeps it from any plan, `unpaid` are the payers whose budget a create would exceed. */
export type Withheld = {
  snapshot: Snapshot;
  budgets: Budgets;
  silent: ReadonlySet<string>;
  limits: ReadonlyMap<string, Allowance>;
  now: number;
  hole: Constraint | undefined;
  withheld: ReadonlyMap<string, Constraint>;
  payers: ReadonlyMap<string, string | null>;
  unpaid: ReadonlySet<string>;
};

/** A plan with its workers by run, and its workers without work and its empty slots by payer. A pool may have many runs. */
type Indexed = Withheld & {
  usual: Usual;
  atWork: ReadonlyMap<string | undefined, Worker[]>;
  coming: ReadonlyMap<string | null, Worker[]>;
  asked: ReadonlyMap<string | null | undefined, Slot[]>;
};
type Slot = ReturnType<typeof slotsOf>[number];

function indexed(plan: Withheld): Indexed {
  const {pool, workers} = plan.snapshot;
  const all = [...workers.values()];
  const isComing = (worker: Worker) =>
    worker.work === null && !hasEnded(worker) && worker.phase !== 'draining';
  const isEmpty = ({name}: Slot) => (workers.get(name)?.phase ?? 'gone') === 'gone';
  return {
    ...plan,
    usual: {create: usualTime(all, createOf), boot: usualTime(all, bootOf)},
    atWork: Map.groupBy(all, runAtWork),
    coming: Map.groupBy(all.filter(isComing), worker => plan.payers.get(worker.name) ?? payerOf(worker)),
    asked: Map.groupBy(slotsOf(pool).filter(isEmpty), ({name}) => plan.payers.get(name)),
  };
}

export function bindingConstraints(withheld: Withheld): Constraints {
  const plan = indexed(withheld);
  const {pool, runs, jobs} = plan.snapshot;
  const inLine = runs
    .filter(run => run.pool === pool.pool && run.status === 'active')
    .sort(byPreference(null));
  const work = new Map<string, Constraint>();
  const before: Ahead[] = [];
  const note = (name: string, waiting: number, own: Constraint | undefined) => {
    const coming = comingFor(name, plan);
    const why = own ?? whyWaiting(name, waiting, coming, before, plan);
    if (why) work.set(name, why);
    if (waiting > coming.length) before.push({name, waiting});
  };
  const {whole} = plan.budgets;
  const spent = whole && constraint('budget', whole.about, whole.why);
  if (jobs?.waiting) note(JOBS, jobs.waiting, plan.hole ?? spent);
  for (const run of inLine) {
    const counts = plan.snapshot.streams.get(run.run);
    // Each status is counted by a query of its own, and streams end between two of them.
    const pending = counts ? Math.min(counts.totals.streams_pending, counts.unfinished) : 0;
    note(run.run, pending, ofRun(run, pending, plan));
  }
  return {work, zones: work.size > 0 ? zonesOf(plan) : new Map()};
}

/** Work that the plan serves earlier, and that has no TPU yet. */
type Ahead = {name: string; waiting: number};

/** The constraint of the run alone, whatever other work there is. */
function ofRun(run: Run, pending: number, plan: Indexed): Constraint | undefined {
  const over = plan.budgets.over.get(run.run);
  if (over !== undefined) return constraint('budget', `run ${run.run}`, over);
  if (run.spec === null) return constraint('no-spec', run.run);
  const slice = runAcceleratorProblem(plan.snapshot.pool.accelerator);
  if (slice) return constraint('several-hosts', run.pool, slice);
  if (!plan.snapshot.streams.has(run.run)) return constraint('not-read', `the streams of run ${run.run}`);
  return stuckHolders(run.run, plan) ?? (pending > 0 ? plan.hole : undefined);
}

function stuckHolders(run: string, plan: Indexed): Constraint | undefined {
  const holders = (plan.atWork.get(run) ?? []).filter(worker => !hasEnded(worker));
  const stuck = holders.flatMap(worker => stillOf(worker, plan) ?? []);
  return holders.length > 0 && stuck.length === holders.length ? dominant(stuck) : undefined;
}

function stillOf(worker: Worker, {silent, snapshot: {zones = []}}: Withheld): Constraint | undefined {
  const still = standstillOf(worker);
  if (!silent.has(worker.name) || nodeStanding(worker) === 'mending') return still;
  return silentConstraint(worker, zones.find(({zone}) => zone === worker.zone)?.silence_guard);
}

/** Constraints of the TPUs that come for the work: of its payer, and without work yet. */
function comingFor(name: string, plan: Indexed): Constraint[] {
  const limitIn = (zone: string) => plan.limits.get(zone)?.why;
  const living = (plan.coming.get(name) ?? []).flatMap(
    worker =>
      stillOf(worker, plan) ?? tpuConstraint(worker, limitIn(worker.zone), plan.now, plan.usual) ?? [],
  );
  const asked = (plan.asked.get(name) ?? []).map(
    slot =>
      foreignNode(slot.name, plan) ??
      limitIn(slot.zone) ??
      constraint('coming', slot.name, 'it is being created'),
  );
  return [...living, ...asked];
}

function foreignNode(name: string, {snapshot: {nodes}}: Withheld): Constraint | undefined {
  const tpu = nodes?.tpus.get(name);
  if (!nodes || !tpu || !isForeign(tpu, nodes.deployment)) return undefined;
  return constraint('slot-blocked', name, 'there is a node of its name that is not ours');
}

const bootOf = ({ready_at, agent_at}: Worker) => [ready_at, agent_at] as const;
const createOf = ({born_at, ready_at}: Worker) => [born_at, ready_at] as const;

/** `usually 2.5 min`, below 100 seconds `usually 40 s`: the median of the living workers of the pool that have this behind them; null without one. */
function usualTime(
  workers: readonly Worker[],
  spanOf: (worker: Worker) => readonly [string | null, string | null],
): string | null {
  const spans = workers.flatMap(worker => {
    const [from, to] = spanOf(worker);
    return from === null || to === null ? [] : Math.max(0, msOf(to) - msOf(from)) / 1000;
  });
  const median = spans.sort((a, b) => a - b)[Math.floor(spans.length / 2)];
  if (median === undefined) return null;
  return median < 100 ? `usually ${Math.ceil(median)} s` : `usually ${(median / 60).toFixed(1)} min`;
}

function whyWaiting(
  name: string,
  waiting: number,
  coming: readonly Constraint[],
  before: readonly Ahead[],
  plan: Indexed,
): Constraint | undefined {
  if (waiting === 0) return undefined;
  const {workers, pool} = plan.snapshot;
  const isBegun = plan.atWork.has(name);
  const gang = name === JOBS ? ofFirstGang(coming, plan) : undefined;
  const next = dominantOfComing(coming);
  const nearest = next?.kind === 'idle' ? (gang ?? next) : next;
  if (nearest && (!isBegun || waiting <= coming.length)) return nearest;
  if (plan.unpaid.has(name)) return ofBudget(name, plan);
  const first = before[0];
  if (first) return behind(first.name, plan);
  const slots = slotsOf(pool);
  if (pool.zones.length === 0)
    return constraint('ceiling', `no zone of pool ${pool.pool}`, 'GLEANER_ALLOWED_ZONES');
  if (slots.length === 0) return constraint('no-slot', pool.pool);
  // During its pause the job asks for no TPU, whatever the zone gives.
  if (gang?.next_try_at) return gang;
  const empty = slots
    .filter(({name}) => (workers.get(name)?.phase ?? 'gone') === 'gone')
    .flatMap(({name}) => plan.withheld.get(name) ?? foreignNode(name, plan) ?? [])
    // The job that keeps a slot says more about it.
    .filter(({kind}) => kind !== 'slices' || !gang);
  return dominant(empty) ?? nearest ?? gang ?? ofFullPool(name, plan);
}

/** The TPU that comes first: an idle one, then a boot, then a create. */
function dominantOfComing(coming: readonly Constraint[]): Constraint | undefined {
  const order = ['idle', 'boot', 'create', 'queue'];
  return order.flatMap(kind => coming.find(each => each.kind === kind) ?? [])[0] ?? dominant(coming);
}

/** The slices that the first waiting job still needs, and why the next one is missing; undefined if one slice is enough for the job. */
function ofFirstGang(coming: readonly Constraint[], {now, snapshot: {pool, workers, jobs}}: Withheld) {
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
  const before = `slices there waited for others in vain, ${count === 1 ? 'once' : `${count} times`}`;
  const evidence = [ready, ...(count > 0 ? [before] : []), ...(missing ? [shortText(missing)] : [])];
  const next_try_at = next_at !== null && msOf(next_at) > now ? next_at : null;
  return constraint('slices', `job ${job.job}`, evidence.join('; '), {next_try_at});
}

/** Slots that have a TPU for other work, or one that leaves. */
function ofFullPool(name: string, plan: Withheld): Constraint {
  const {workers, pool} = plan.snapshot;
  const slots = slotsOf(pool);
  const payers = slots.flatMap(slot => payerOfSlot(slot.name, plan) ?? []);
  const at = (payer: string) => payers.filter(each => each === payer).length;
  const leaving = [...workers.values()].find(
    worker => worker.phase !== 'gone' && (hasEnded(worker) || worker.phase === 'draining'),
  );
  if (leaving && payers.length < slots.length) return leavingConstraint(leaving);
  const free = soonFree(plan);
  if (free && payers.length < slots.length)
    return constraint(
      'idle',
      free.name,
      `it ends the shard in hand of ${free.work}, whose run is not active`,
    );
  const [most] = [...new Set(payers)].filter(payer => payer !== name).sort((a, b) => at(b) - at(a));
  if (most !== undefined && at(name) === 0)
    return name === JOBS ? afterStreams(payers.length, pool) : behind(most, plan);
  return constraint('pool-full', pool.pool, `${at(name)} of ${slots.length} at this work`);
}

/** The TPU that the work waits for, with a stream of a run that was paused or has ended: the plan creates no further one. */
function soonFree({silent, snapshot: {runs, unreadable_runs, workers}}: Withheld): Worker | undefined {
  const kept = new Set([
    ...runs.flatMap(({run, status}) => (status === 'active' ? run : [])),
    ...unreadable_runs,
  ]);
  return [...workers.values()].find(worker => {
    const run = worker.phase === 'working' ? parseWork(worker.work)?.run : undefined;
    return run !== undefined && !kept.has(run) && !silent.has(worker.name);
  });
}

/** Jobs go before streams: a TPU gives its stream back to a late job, at the end of a shard. */
function afterStreams(tpus: number, {pool, job_wait_s}: Pool): Constraint {
  const evidence = `${tpus} at streams, and one gives its stream back to a job that has waited for ${job_wait_s} s`;
  return constraint('pool-full', pool, evidence);
}

/** The run, or the jobs, that the slot works for or gets a TPU for. */
function payerOfSlot(slot: string, {snapshot: {workers}, payers}: Withheld): string | undefined {
  const worker = workers.get(slot);
  const isThere = worker !== undefined && !hasEnded(worker);
  const payer = payers.get(slot) ?? (isThere ? payerOf(worker) : null);
  return payer === null || payer === KEPT ? undefined : payer;
}

function behind(name: string, {snapshot: {pool, runs}}: Withheld): Constraint {
  if (name === JOBS) return constraint('behind', `jobs of pool ${pool.pool}`);
  const priority = runs.find(({run}) => run === name)?.priority ?? 0;
  return constraint('behind', `run ${name}`, `its priority is ${priority}`);
}

/** The budget that pays for no further TPU: of the run, of the pool or of the month. */
function ofBudget(name: string, {budgets, snapshot: {pool, prices}}: Withheld): Constraint {
  const usd = Math.max(0, ...pool.zones.map(zone => costOfDeleting(priceOf(prices ?? {}, pool, zone) ?? 0)));
  const left_usd = name === JOBS ? Number.POSITIVE_INFINITY : budgets.leftOf(name);
  const [about, left] =
    left_usd <= budgets.left_usd
      ? [`run ${name}`, left_usd]
      : [pool.budget_usd === null ? 'the month' : `pool ${pool.pool}`, budgets.left_usd];
  return constraint(
    'budget',
    about,
    `$${Math.max(0, left).toFixed(2)} are left, and a TPU needs $${usd.toFixed(2)} until it is gone`,
  );
}

/** Why the zones of the pool fill no further slot. A constraint of one slot alone says nothing about its zone. */
function zonesOf({snapshot: {pool}, withheld, limits}: Withheld): Map<string, Constraint> {
  const ofSlots = slotsOf(pool).flatMap(({name, zone}) => {
    const why = withheld.get(name);
    return why && !why.about.includes(name) ? [{zone, why}] : [];
  });
  const ofZones = pool.zones.flatMap(zone => {
    const why = limits.get(zone)?.why;
    return why ? [{zone, why}] : [];
  });
  const byZone = Map.groupBy([...ofSlots, ...ofZones], ({zone}) => zone);
  const binding = ([zone, found]: [string, {why: Constraint}[]]) => {
    const why = dominant(found.map(each => each.why));
    return why ? [[zone, why] as const] : [];
  };
  return new Map([...byZone].flatMap(binding));
}
