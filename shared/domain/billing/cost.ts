import {isRunId, parseJobWork, parseWork} from '../names.ts';
import {type Constraint, constraint} from '../records/constraint.ts';
import {type Costs, hasEnded, type Worker, type Workers} from '../records/worker.ts';
import {iso, msOf} from '../time.ts';
import type {TimelineEvent} from '../timeline.ts';

const IDLE = '_idle';
/** The payer of nodes for jobs. It has no document and no budget of its own; the budgets of the pool and of the month bound it. */
export const JOBS = '_jobs';
/** The payer of nodes that a pool keeps without work. The budgets of the pool and of the month bound it. */
export const KEPT = '_kept';
/** Key prefix of downloads in `costs`, before their payer. */
const DOWNLOADS = '_downloads/';
const HOUR_MS = 3_600_000;

/**
 * Paid time of a TPU after the request to delete it. Google's guides say that deleting takes a minute or two, and the tick that notices the
 * end comes up to a minute later.
 */
const DELETING_MS = 180_000;

/**
 * Adds the cost of the worker up to `now`. A node costs from READY until it is gone. Its time belongs to the run that it works for, or
 * worked for last. Before its first work, its time belongs to the run that it was created for, or else to its first run.
 */
export function accrue(worker: Worker, now: number): Worker {
  const counted = countedTo(worker, now);
  if (!counted) return worker;
  return {...worker, costs: counted.costs, costs_at: iso(counted.until_ms), charged_to: payerOf(worker)};
}

/** The costs up to `now`; undefined for a worker that costs nothing yet or whose price is unknown. */
function countedTo(worker: Worker, now: number): {costs: Costs; until_ms: number} | undefined {
  const {ready_at, usd_per_hour, phase} = worker;
  if (ready_at === null || usd_per_hour === null || phase === 'gone') return undefined;
  const since = msOf(worker.costs_at ?? ready_at);
  // A slow clock or a slow transaction must not count the same time twice.
  const until = Math.max(now, since);
  const usd = ((until - since) / HOUR_MS) * usd_per_hour;
  const {[IDLE]: idle = 0, ...costs} = worker.costs;
  const key = payerOf(worker) ?? IDLE;
  const before = key === IDLE ? idle : (costs[key] ?? 0) + idle;
  return {costs: {...costs, [key]: before + usd}, until_ms: until};
}

/** Sets aside the cost of deleting a node in the slot. Returns the budget that does not cover it. */
export type ReserveBudget = (run: string, slot: string) => Constraint | undefined;

/**
 * `left`: budgets minus spending, minus the cost of deleting the living workers. A run that is missing in `left` has no budget. `shared`:
 * name of the tighter budget of pool and month.
 */
export function budgetReserver(
  left: {runs: ReadonlyMap<string, number>; pool: number},
  workers: Workers,
  usdPerHourIn: (slot: string) => number | null,
  shared: string,
): ReserveBudget {
  const runs = new Map(left.runs);
  let {pool} = left;
  return (run, slot) => {
    const usd = costOfDeleting(usdPerHourIn(slot) ?? 0);
    // The pool's costs contain a living node already.
    const ofPool = (workers.get(slot)?.phase ?? 'gone') === 'gone' ? usd : 0;
    const ofRun = runs.get(run) ?? 0;
    const isPaid = usd < ofRun && (ofPool === 0 || ofPool < pool);
    if (!isPaid) return noBudget(ofRun <= pool ? `run ${run}` : shared, Math.min(ofRun, pool), usd);
    runs.set(run, ofRun - usd);
    pool -= ofPool;
    return undefined;
  };
}

function noBudget(about: string, left_usd: number, usd: number): Constraint {
  const [left, needed] = [Math.max(0, left_usd), usd].map(cents);
  return constraint('budget', about, `${left} are left, and a TPU needs ${needed} until it is gone`);
}

/** True for a worker that fell silent at work: its run keeps paying for it. */
export const isHeld = ({suspect}: Worker) => suspect !== null;

/** True for a worker without work that another payer may take over. */
export function isSpare({phase, work, charged_to}: Worker): boolean {
  const isThere = phase === 'creating' || phase === 'booting' || phase === 'idle' || phase === 'working';
  return isThere && work === null && charged_to !== null;
}

/** The worker with `run` as its payer. The cost until now stays with the earlier run. */
export function withPayer(worker: Worker, run: string | null): Worker {
  return run === null || run === worker.charged_to || !isSpare(worker) || isHeld(worker)
    ? worker
    : {...worker, charged_to: run};
}

/** The worker with its price, once the price is known. Its earlier time is billed at this price too. */
export function pricedAt(worker: Worker, price: () => number | null): Worker {
  const isPaidFor = worker.ready_at !== null && worker.phase !== 'gone';
  if (!isPaidFor || worker.usd_per_hour !== null) return worker;
  const usd_per_hour = price();
  return usd_per_hour === null ? worker : {...worker, usd_per_hour};
}

/**
 * The worker at another price from `since_ms` on. Time before `since_ms` keeps the earlier price. Time after it that was already billed at
 * the earlier price is corrected for the run that pays now. Each hour is corrected once, even if a slow tick brings the earlier price back.
 */
export function repricedAt(worker: Worker, usd_per_hour: number, since_ms: number, now: number): Worker {
  const {ready_at, priced_from_at, usd_per_hour: before, phase} = worker;
  // A node may have been READY before the tick that sees it; it keeps the earlier price until that tick.
  if (before === null || before === usd_per_hour || ready_at === null || phase === 'gone') return worker;
  const counted = accrue(worker, now);
  const from_ms = Math.max(since_ms, msOf(priced_from_at ?? ready_at));
  const hours = Math.max(0, msOf(counted.costs_at ?? ready_at) - from_ms) / HOUR_MS;
  const key = payerOf(counted) ?? IDLE;
  const usd = (counted.costs[key] ?? 0) + hours * (usd_per_hour - before);
  return {...counted, usd_per_hour, priced_from_at: iso(from_ms), costs: {...counted.costs, [key]: usd}};
}

/** The run that the worker works for, or whose stream the worker lost when it fell silent or its machine failed. */
export function runAtWork(worker: Worker): string | undefined {
  const {work, suspect} = worker;
  return parseWork(work ?? (hasEnded(worker) ? null : (suspect?.work ?? null)))?.run;
}

export const payerOf = ({work, charged_to}: Worker): string | null => payerOfWork(work) ?? charged_to;

/** An event about a worker: it belongs to the run that pays for the worker. */
export function workerEvent(worker: Worker, text: string, fold?: string): TimelineEvent {
  const run = payerOf(worker) ?? '';
  return {kind: 'worker', worker: worker.name, ...(isRunId(run) ? {run} : {}), text, fold};
}

export function payerOfWork(work: string | null): string | undefined {
  return parseJobWork(work) === undefined ? parseWork(work)?.run : JOBS;
}

export function payerText(payer: string | null): string {
  if (payer === JOBS) return 'the pool, for jobs,';
  return payer === KEPT ? 'the pool, which keeps it,' : `run ${payer}`;
}

export const downloadsOf = (payer: string) => `${DOWNLOADS}${payer}`;

/** The keys that are runs. No run id starts with an underscore. */
export function runsAmong(costs: Costs): string[] {
  const payers = Object.keys(costs).map(key =>
    key.startsWith(DOWNLOADS) ? key.slice(DOWNLOADS.length) : key,
  );
  return [...new Set(payers)].filter(payer => !payer.startsWith('_'));
}

export const totalOf = (costs: Costs) => Object.values(costs).reduce((sum, usd) => sum + usd, 0);

/** Cost of the living incarnations up to `now`, by key of `costs` and in total. */
export function costOfLiving(workers: Iterable<Worker>, now: number) {
  const runs = new Map<string, number>();
  let total = 0;
  for (const worker of workers) {
    if (worker.phase === 'gone') continue;
    const {costs} = countedTo(worker, now) ?? worker;
    for (const [run, usd] of Object.entries(costs)) runs.set(run, (runs.get(run) ?? 0) + usd);
    total += totalOf(costs);
  }
  return {runs, total};
}

/** Cost of deleting all living workers now, by run and in total. A worker that is not READY yet may become READY before it is deleted. */
export function costOfDeletingAll(workers: Iterable<Worker>): {runs: Map<string, number>; total: number} {
  const runs = new Map<string, number>();
  let total = 0;
  for (const worker of workers) {
    if (worker.phase === 'gone') continue;
    const [run, usd] = [payerOf(worker), costOfDeleting(worker.usd_per_hour ?? 0)];
    if (run !== null) runs.set(run, (runs.get(run) ?? 0) + usd);
    total += usd;
  }
  return {runs, total};
}

/** Dollars that a node of this price costs from the request to delete it until it is gone. */
export const costOfDeleting = (usd_per_hour: number) => (DELETING_MS / HOUR_MS) * usd_per_hour;

/** Life in which a TPU can boot and store a shard. */
const SHORT_LIFE_MS = 300_000;

/** Dollars with two decimals; amounts below a cent have two significant digits. */
const cents = (usd: number) => `$${usd > 0 && usd < 0.01 ? usd.toPrecision(2) : usd.toFixed(2)}`;

/** Least budget that pays for a TPU of this price: a short life and its deletion. */
export function leastBudget(usd_per_hour: number): number {
  return (SHORT_LIFE_MS / HOUR_MS) * usd_per_hour + costOfDeleting(usd_per_hour);
}

/**
 * Why a budget allows no more cost, and the remedy; undefined while the budget allows more. A budget pays for TPUs until they are gone:
 * `leaving_usd` is the cost of deleting them. A budget allows no TPU of unknown price.
 */
export function overspent(
  whose: 'run' | 'pool' | 'month',
  budget_usd: number | null,
  {spent_usd, leaving_usd}: {spent_usd: number; leaving_usd: number},
  isPriceKnown: boolean,
): string | undefined {
  if (budget_usd === null) return undefined;
  if (!isPriceKnown) return 'the price of its TPUs is unknown; set prices/chips';
  if (spent_usd + leaving_usd < budget_usd) return undefined;
  const reserve = `, and ${cents(leaving_usd)} are kept for the minutes that deleting TPUs takes`;
  const spent = `${cents(spent_usd)} of ${cents(budget_usd)} are spent${spent_usd < budget_usd ? reserve : ''}`;
  switch (whose) {
    case 'run':
      return `${spent}; configure a larger budget_usd`;
    case 'pool':
      return `of the pool, ${spent}; scale it to a larger budget_usd`;
    case 'month':
      return `of the deployment's month, ${spent}; raise GLEANER_MAX_BUDGET_USD, or wait for the next month`;
    default:
      return whose satisfies never;
  }
}
