/** Bills of ended incarnations: their costs go to runs, pool and months. */
import type {Pool} from '../records/pool.ts';
import type {Run} from '../records/run.ts';
import type {Worker} from '../records/worker.ts';
import {iso} from '../time.ts';
import {downloadsOf, runsAmong, totalOf} from './cost.ts';
import {addLives, type Spending} from './monthly-spending.ts';

/** Documents that pay for ended incarnations. A missing or undefined document is not changed. */
export type Payers = {runs: Map<string, Run>; pool: Pool | undefined; spending: Spending | undefined};

export type Share = {spent_usd: number; spent_download_usd: number};

/** Dollars of these incarnations by run. Keys of the costs that name no run are left out. */
export function sharesOf(ended: readonly Worker[]): Map<string, Share> {
  const shares = new Map<string, Share>();
  for (const {costs} of ended)
    for (const run of runsAmong(costs)) {
      const {spent_usd, spent_download_usd} = shares.get(run) ?? {spent_usd: 0, spent_download_usd: 0};
      shares.set(run, {
        spent_usd: spent_usd + (costs[run] ?? 0),
        spent_download_usd: spent_download_usd + (costs[downloadsOf(run)] ?? 0),
      });
    }
  return shares;
}

export const billOf = (ended: readonly Worker[]) => ended.reduce((sum, {costs}) => sum + totalOf(costs), 0);

/** Adds the cost of ended incarnations to their payers. The caller ends the incarnations in the same write, so each is billed once. */
export function addBill(payers: Payers, ended: readonly Worker[], now: number): void {
  const total = billOf(ended);
  if (total === 0) return;
  const {pool, spending, runs} = payers;
  for (const [name, share] of sharesOf(ended)) {
    const run = runs.get(name);
    if (!run || share.spent_usd + share.spent_download_usd === 0) continue;
    const spent_usd = run.spent_usd + share.spent_usd;
    const spent_download_usd = run.spent_download_usd + share.spent_download_usd;
    runs.set(name, {
      ...run,
      ...{spent_usd, spent_download_usd},
      // No later tick updates the cost of a run that has ended.
      cost_usd: Math.max(run.cost_usd, spent_usd),
      download_usd: Math.max(run.download_usd, spent_download_usd),
      updated_at: iso(now),
    });
  }
  if (pool) payers.pool = {...pool, spent_usd: pool.spent_usd + total};
  if (spending) payers.spending = {...spending, months: addLives(spending, ended)};
}

/** Counts a preempted TPU in the run that paid for it. A run whose count is unknown stays without one. */
export function addPreemption({runs}: Payers, {charged_to}: Worker, now: number): void {
  const run = runs.get(charged_to ?? '');
  if (run && run.preemptions !== null)
    runs.set(run.run, {...run, preemptions: run.preemptions + 1, updated_at: iso(now)});
}

export function unpaidText(payer: string, usd: number): string {
  return `${usd} USD are not added to the document of ${payer}, which is missing or invalid`;
}

/** Dollars of these incarnations, by payer, for payers without a document to add them to. */
export function unpaid(
  {runs, pool, spending}: Payers,
  ended: readonly Worker[],
): [payer: string, usd: number][] {
  const total = billOf(ended);
  const of: [string, number][] = [...sharesOf(ended)].flatMap(([run, share]) =>
    runs.has(run) ? [] : [[`run ${run}`, share.spent_usd + share.spent_download_usd] as const],
  );
  if (!pool) of.push(['the pool', total]);
  if (!spending) of.push(['the months', total]);
  return of.filter(([, usd]) => usd > 0);
}
