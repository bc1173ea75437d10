import {parseWork} from '../names.ts';
import type {Run} from '../run/run.ts';
import {iso, msOf} from '../time.ts';
import {type Costs, hasEnded, type Worker} from '../worker/worker.ts';

const IDLE = '_idle';
const HOUR_MS = 3_600_000;

/**
 * For how long a TPU is paid for after it is told to go. Google's guides give deleting a minute or two, and the look that finds it gone
 * comes up to a minute after that.
 */
const LEAVING_MS = 180_000;

/**
 * Brings what the worker has cost up to `now`. A node costs from READY until it is gone. Its time belongs to the run that it
 * works for, or worked for last; before its first work, to the run that it was made for. Of a node that no document knew nobody can say
 * that: it is the first one's that it works for.
 */
export function accrue(worker: Worker, now: number): Worker {
  const {ready_at, usd_per_hour, phase} = worker;
  if (ready_at === null || usd_per_hour === null || phase === 'gone') return worker;
  const since = msOf(worker.costs_at ?? ready_at);
  // A clock that is behind, or a slow transaction, must not have the same time counted again.
  const until = Math.max(now, since);
  const usd = ((until - since) / HOUR_MS) * usd_per_hour;
  const run = payerOf(worker);
  const {[IDLE]: idle = 0, ...costs} = worker.costs;
  const key = run ?? IDLE;
  const before = key === IDLE ? idle : (costs[key] ?? 0) + idle;
  return {...worker, costs: {...costs, [key]: before + usd}, costs_at: iso(until), charged_to: run};
}

/**
 * For which run each slot would be given a node, and those that have one and no work, where their own run needs them no more: whoever is
 * served first, and no more for each than it has streams. The run pays for what a node takes to come up, also if it never does. Null
 * where a run has a stream for the slot and none `pays`.
 */
export function payersFor(
  slots: Iterable<string>,
  workers: ReadonlyMap<string, Worker>,
  open: readonly {run: string; streams: number}[],
  fixed: ReadonlyMap<string, string>,
  pays: Purse = () => true,
): Map<string, string | null> {
  const left = new Map(open.map(({run, streams}) => [run, streams]));
  const take = (run: string) => left.set(run, (left.get(run) ?? 0) - 1);
  const living = [...workers.values()].filter(({phase}) => phase !== 'gone');
  for (const {work} of living) if (work !== null) take(parseWork(work)?.run ?? '');
  const kept = new Set<string>();
  for (const worker of living) {
    const run = worker.charged_to ?? '';
    const isNeeded = isHeld(worker) || fixed.get(worker.name) === run || (left.get(run) ?? 0) > 0;
    if (!isSpare(worker) || !isNeeded) continue;
    take(run);
    kept.add(worker.name);
  }
  const payers = new Map<string, string | null>();
  for (const name of slots) {
    const worker = workers.get(name);
    const isEmpty = worker === undefined || worker.phase === 'gone';
    if (!isEmpty && (kept.has(name) || !isSpare(worker))) continue;
    const own = fixed.get(name);
    const inNeed = [...left].filter(([, streams]) => streams > 0).map(([run]) => run);
    const first = isEmpty && inNeed.length === 0 ? open.slice(0, 1).map(({run}) => run) : inNeed;
    const asked = own === undefined ? first : [own];
    if (asked.length === 0) continue;
    const run = asked.find(run => pays(run, name)) ?? null;
    if (run !== null) take(run);
    payers.set(name, run);
  }
  return payers;
}

/** Whether the run, and the pool, can pay for a node in the slot until it is gone again; what that costs is then set aside. */
export type Purse = (run: string, slot: string) => boolean;

/** `left` is what budgets leave beside the cost of what lives until it is gone; a run that is not named has nothing. */
export function purseOf(
  left: {runs: ReadonlyMap<string, number>; pool: number},
  workers: ReadonlyMap<string, Worker>,
  usdPerHourIn: (slot: string) => number | null,
): Purse {
  const runs = new Map(left.runs);
  let {pool} = left;
  return (run, slot) => {
    const usd = toLeave(usdPerHourIn(slot) ?? 0);
    // A node that is there is in the pool's costs already, whoever pays for it.
    const ofPool = (workers.get(slot)?.phase ?? 'gone') === 'gone' ? usd : 0;
    const ofRun = runs.get(run) ?? 0;
    if (usd >= ofRun || (ofPool > 0 && ofPool >= pool)) return false;
    runs.set(run, ofRun - usd);
    pool -= ofPool;
    return true;
  };
}

/** A worker that fell silent at work stays with the run that it worked for. */
function isHeld({suspect}: Worker): boolean {
  return suspect !== null;
}

/** It was made for a run, and works for none now. */
function isSpare({phase, work, charged_to}: Worker): boolean {
  const isThere = phase === 'creating' || phase === 'booting' || phase === 'idle' || phase === 'working';
  return isThere && work === null && charged_to !== null;
}

/** The worker as it is when another run pays for it: what it has cost so far is not that one's. */
export function paidBy(worker: Worker, run: string | null): Worker {
  return run === null || run === worker.charged_to || !isSpare(worker) || isHeld(worker)
    ? worker
    : {...worker, charged_to: run};
}

/** The worker as it is when its price becomes known: the time that it was not known for is paid for too. */
export function pricedAt(worker: Worker, price: () => number | null): Worker {
  const isPaidFor = worker.ready_at !== null && worker.phase !== 'gone';
  if (!isPaidFor || worker.usd_per_hour !== null) return worker;
  const usd_per_hour = price();
  return usd_per_hour === null ? worker : {...worker, usd_per_hour};
}

/** The run that the worker works for, or lost its stream of by its silence or a failure of its machine. */
export function runAtWork(worker: Worker): string | undefined {
  const {work, suspect} = worker;
  return parseWork(work ?? (hasEnded(worker) ? null : (suspect?.work ?? null)))?.run;
}

/** The run that the worker's time belongs to now. */
export function payerOf({work, charged_to}: Worker): string | null {
  return parseWork(work)?.run ?? charged_to;
}

export function totalOf(costs: Costs): number {
  return Object.values(costs).reduce((sum, usd) => sum + usd, 0);
}

/** What the lives that have not ended have cost by now: of each run, and together. */
export function costOfLiving(
  workers: Iterable<Worker>,
  now: number,
): {runs: Map<string, number>; total: number} {
  const runs = new Map<string, number>();
  let total = 0;
  for (const worker of workers) {
    if (worker.phase === 'gone') continue;
    const {costs} = accrue(worker, now);
    for (const [run, usd] of Object.entries(costs)) runs.set(run, (runs.get(run) ?? 0) + usd);
    total += totalOf(costs);
  }
  return {runs, total};
}

/**
 * What the lives that have not ended cost from now on, if all are told to go: of each run, and together. One that is not READY may be
 * so before it hears of that.
 */
export function costOfLeaving(workers: Iterable<Worker>): {runs: Map<string, number>; total: number} {
  const runs = new Map<string, number>();
  let total = 0;
  for (const worker of workers) {
    if (worker.phase === 'gone') continue;
    const [run, usd] = [payerOf(worker), toLeave(worker.usd_per_hour ?? 0)];
    if (run !== null) runs.set(run, (runs.get(run) ?? 0) + usd);
    total += usd;
  }
  return {runs, total};
}

/** What a node of this price costs after it is told to go. */
export function toLeave(usd_per_hour: number): number {
  return (LEAVING_MS / HOUR_MS) * usd_per_hour;
}

/** Dollars an hour of the TPUs that a run had last, each as far as the run paid for it; null where none says what it cost. */
export function usdPerHourFor(run: string, workers: Iterable<Worker>): number | null {
  let [usd, hours] = [0, 0];
  for (const {costs, usd_per_hour} of workers) {
    const paid = costs[run] ?? 0;
    if (paid === 0 || !usd_per_hour) continue;
    usd += paid;
    hours += paid / usd_per_hour;
  }
  return hours > 0 ? usd / hours : null;
}

/**
 * Why a budget allows nothing more and what to do, or undefined while it does. It has to pay for TPUs until they are gone:
 * `leaving_usd` is what that costs from now on. What nobody knows the price of, no budget can allow.
 */
export function overspent(
  whose: 'run' | 'pool' | 'month',
  budget_usd: number | null,
  {spent_usd, leaving_usd}: {spent_usd: number; leaving_usd: number},
  isPriceKnown: boolean,
): string | undefined {
  if (budget_usd === null) return undefined;
  if (!isPriceKnown) return 'nobody knows what its TPUs cost; set prices/chips';
  if (spent_usd + leaving_usd < budget_usd) return undefined;
  const kept = `, and $${leaving_usd.toFixed(2)} are kept for the minutes that deleting TPUs takes`;
  const spent = `$${spent_usd.toFixed(2)} of $${budget_usd.toFixed(2)} are spent${spent_usd < budget_usd ? kept : ''}`;
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

/** The run as it is when its budget is spent: paused, with the reason, until somebody gives it more and resumes it. */
export function pausedForMoney(run: Run, why: string, now: number): Run {
  const reason = `its budget allows no more: ${why}, then resume`;
  return {...run, status: 'paused', reason, updated_at: iso(now)};
}

/** What a million tokens have cost, or null before there are any. Tokens that are computed and not stored yet are in the cost alone. */
export function usdPerMillionTokens({
  cost_usd,
  total_tokens,
}: Pick<Run, 'cost_usd' | 'total_tokens'>): number | null {
  return total_tokens > 0 ? (cost_usd / total_tokens) * 1e6 : null;
}
