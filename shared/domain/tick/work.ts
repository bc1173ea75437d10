/** The work of a pool in the order in which it is served: jobs, then runs by priority and start, then the TPUs to keep without work. */
import {JOBS, KEPT, runAtWork} from '../billing/cost.ts';
import {runAcceleratorProblem} from '../fleet/accelerators.ts';
import {parseJobWork} from '../names.ts';
import {type Constraint, constraint, dominant} from '../records/constraint.ts';
import {keptBy} from '../records/pool.ts';
import {isRunnable, type Run} from '../records/run.ts';
import {hasEnded, type Worker} from '../records/worker.ts';
import {byPreference} from '../stream/service-order.ts';
import {nodeStanding} from '../worker/provider-states.ts';
import {silentConstraint, standstillOf} from '../worker/tpu-constraint.ts';
import type {Budgets} from './budgets.ts';
import {type Gathering, gatherSlots, NO_GATHERING} from './gangs.ts';
import type {Snapshot, TickConfig} from './snapshot.ts';

/** What a payer needs: a run, `JOBS` or `KEPT`. */
export type Demand = {
  payer: string;
  /** Jobs or unfinished streams for any slot, including those at work. */
  open: number;
  /** Slots of streams that no other slot may take, or of a job of several slices. */
  bound: readonly string[];
  /** Jobs or streams without a TPU. */
  waiting: number;
  /** Why it waits, regardless of TPUs. */
  own: Constraint | undefined;
};

/** `unread`: the part that could not be read. Without it the amount of work is unknown, and the nodes stay as they are. */
export type Work = {demands: readonly Demand[]; gathering: Gathering; unread: Constraint | undefined};

export function workOf(
  snapshot: Snapshot,
  {budgets, silent}: {budgets: Budgets; silent: ReadonlySet<string>},
  {limits}: TickConfig,
  now: number,
): Work {
  const {pool, jobs, workers, runs, streams} = snapshot;
  const several = runAcceleratorProblem(pool.accelerator);
  const isServed = (run: Run) => !several && isRunnable(run) && !budgets.overBudget.has(run.run);
  const inLine = runs
    .filter(run => run.pool === pool.pool && run.status === 'active')
    .sort(byPreference(null));
  const unread = unreadWork(snapshot, inLine.filter(isServed));
  const isPaid = budgets.sharedLimit === undefined;
  const gangs = (jobs?.first ?? []).filter(({slices}) => slices > 1);
  const gathering =
    isPaid && !unread ? gatherSlots({pool, workers, silent}, gangs, limits.boot_s, now) : NO_GATHERING;
  const atJobs = [...workers.values()].filter(({work}) => parseJobWork(work) !== undefined).length;
  const waiting = jobs?.waiting ?? 0;
  const spent =
    budgets.sharedLimit && constraint('budget', budgets.sharedLimit.about, budgets.sharedLimit.why);
  const ofJobs: Demand = {
    payer: JOBS,
    open: isPaid ? waiting - gangs.length + atJobs : 0,
    bound: [...gathering.wanted],
    waiting,
    own: waiting > 0 ? (unread ?? spent) : undefined,
  };
  const atWork = Map.groupBy(workers.values(), runAtWork);
  const ofRun = (run: Run): Demand => {
    const counts = streams.get(run.run);
    // Each status is counted by its own query, and streams may end between two of them.
    const waiting = counts ? Math.min(counts.totals.streams_pending, counts.unfinished) : 0;
    const over = budgets.overBudget.get(run.run);
    const ownOf = (): Constraint | undefined => {
      if (over !== undefined) return constraint('budget', `run ${run.run}`, over);
      if (run.spec === null) return constraint('no-spec', run.run);
      if (several) return constraint('several-hosts', run.pool, several);
      if (!counts) return constraint('not-read', `the streams of run ${run.run}`);
      const holders = (atWork.get(run.run) ?? []).filter(worker => !hasEnded(worker));
      return whyAllStand(holders, silent, snapshot) ?? (waiting > 0 ? unread : undefined);
    };
    const served = isServed(run) ? counts : undefined;
    const open = run.affinity === 'any' ? (served?.unfinished ?? 0) : 0;
    return {payer: run.run, open, bound: served?.slots ?? [], waiting, own: ownOf()};
  };
  const demands = [ofJobs, ...inLine.map(ofRun)];
  const bound = new Set(demands.flatMap(({bound}) => bound)).size;
  const asked = demands.reduce((sum, {open}) => sum + open, bound);
  const kept = isPaid ? Math.max(0, keptBy(pool, now) - asked) : 0;
  return {
    demands: [...demands, {payer: KEPT, open: kept, bound: [], waiting: 0, own: undefined}],
    gathering,
    unread,
  };
}

/** The unread part without which it is unknown how much work there is. */
function unreadWork({pool, isUnreadable, jobs, streams, zones}: Snapshot, served: readonly Run[]) {
  if (isUnreadable) return constraint('unreadable', `the document of pool ${pool.pool}`);
  if (!jobs) return constraint('not-read', `the jobs of pool ${pool.pool}`);
  const uncounted = served.find(({run}) => !streams.has(run));
  if (uncounted) return constraint('not-read', `the streams of run ${uncounted.run}`);
  return zones ? undefined : constraint('not-read', 'the documents of the zones');
}

/** The reason why the run stands still, if all its TPUs do. */
function whyAllStand(holders: readonly Worker[], silent: ReadonlySet<string>, snapshot: Snapshot) {
  const standing = holders.flatMap(worker => whyStands(worker, silent, snapshot) ?? []);
  return standing.length === holders.length ? dominant(standing) : undefined;
}

/** Why the worker stands still, also if it is silent. */
export function whyStands(
  worker: Worker,
  silent: ReadonlySet<string>,
  {zones = []}: Snapshot,
): Constraint | undefined {
  const still = standstillOf(worker);
  if (!silent.has(worker.name) || nodeStanding(worker) === 'mending') return still;
  return silentConstraint(worker, zones.find(({zone}) => zone === worker.zone)?.silence_guard);
}
