import {type Prices, usdPerHour} from '../../shared/domain/billing/prices.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';

/** Dollars of a million tokens; null before the first token, or without a price. */
export function usdPerMillion(usd: number | null, tokens: number): number | null {
  return usd === null || tokens <= 0 ? null : (usd / tokens) * 1e6;
}

/** Mean dollars an hour of a run's TPUs without downloads, weighted by paid hours; null if no price is known. */
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

/** Cost of a million stored tokens; null before the first. Computed tokens that are not stored yet count in the cost alone. */
export function usdPerMillionTokens(run: Pick<Run, 'cost_usd' | 'total_tokens'>): number | null {
  return usdPerMillion(run.cost_usd, run.total_tokens);
}

/** Mean dollars an hour of a node over the zones with a known price; null without such a zone. */
export function meanUsdPerHour(
  prices: Prices,
  {zones, ...node}: {accelerator: string; spot: boolean; zones: string[]},
): number | null {
  const zonePrices = zones.map(zone => usdPerHour(prices, {...node, zone})).filter(usd => usd !== null);
  return zonePrices.length > 0 ? zonePrices.reduce((sum, usd) => sum + usd) / zonePrices.length : null;
}
