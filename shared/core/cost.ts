import {parseWork} from './names.ts';
import type {Run} from './run.ts';
import {iso, msOf} from './time.ts';
import type {Worker} from './worker.ts';

/** What a life of a slot has cost so far, by the run that it was for. No run is called `_idle`. */
export type Costs = Record<string, number>;

const IDLE = '_idle';
const HOUR_MS = 3_600_000;

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
 * served first, and no more for each than it has streams. The run pays for what a node takes to come up, also if it never does.
 */
export function payersFor(
  slots: Iterable<string>,
  workers: ReadonlyMap<string, Worker>,
  open: readonly {run: string; streams: number}[],
  fixed: ReadonlyMap<string, string>,
): Map<string, string> {
  const left = new Map(open.map(({run, streams}) => [run, streams]));
  const take = (run: string) => left.set(run, (left.get(run) ?? 0) - 1);
  const living = [...workers.values()].filter(({phase}) => phase !== 'gone');
  for (const {work} of living) if (work !== null) take(parseWork(work)?.run ?? '');
  const kept = new Set<string>();
  for (const worker of living) {
    const run = worker.charged_to ?? '';
    if (!isSpare(worker) || !(fixed.get(worker.name) === run || (left.get(run) ?? 0) > 0)) continue;
    take(run);
    kept.add(worker.name);
  }
  const payers = new Map<string, string>();
  for (const name of slots) {
    const worker = workers.get(name);
    const isEmpty = worker === undefined || worker.phase === 'gone';
    if (!isEmpty && (kept.has(name) || !isSpare(worker))) continue;
    const next = fixed.get(name) ?? [...left].find(([, streams]) => streams > 0)?.[0];
    const run = next ?? (isEmpty ? open[0]?.run : undefined);
    if (run === undefined) continue;
    take(run);
    payers.set(name, run);
  }
  return payers;
}

/** It was made for a run, and works for none now. */
function isSpare({phase, work, charged_to}: Worker): boolean {
  const isThere = phase === 'creating' || phase === 'booting' || phase === 'idle' || phase === 'working';
  return isThere && work === null && charged_to !== null;
}

/** The worker as it is when another run pays for it: what it has cost so far is not that one's. */
export function paidBy(worker: Worker, run: string | undefined): Worker {
  return run === undefined || run === worker.charged_to || !isSpare(worker)
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

/** Why a budget allows nothing more and what to do, or undefined while it does. What nobody knows the price of, no budget can allow. */
export function overspent(
  whose: 'run' | 'pool',
  budget_usd: number | null,
  spent_usd: number,
  isPriceKnown: boolean,
): string | undefined {
  if (budget_usd === null) return undefined;
  if (!isPriceKnown) return 'nobody knows what its TPUs cost; set prices/chips';
  if (spent_usd < budget_usd) return undefined;
  const spent = `$${spent_usd.toFixed(2)} of $${budget_usd.toFixed(2)} are spent`;
  return whose === 'run'
    ? `${spent}; configure a larger budget_usd`
    : `of the pool, ${spent}; scale it to a larger budget_usd`;
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
