/** Dollars for one chip and hour. Keys are a generation, `v6e`, or a generation in a region, `v6e@europe-west4`. */
export type Prices = Record<string, {usd: number; spot_usd: number}>;

/**
 * On-demand prices of us regions as they were known in 2025, not checked against the price page since; spot is taken as 30 % of
 * them, the ratio of the 4.50 and 1.35 dollars that a v2-8 cost. The document `prices/chips` overrides any of them, and should.
 */
export const LIST_PRICES: Prices = {
  v2: {usd: 1.125, spot_usd: 0.3375},
  v3: {usd: 2, spot_usd: 0.6},
  v4: {usd: 3.22, spot_usd: 0.966},
  v5litepod: {usd: 1.2, spot_usd: 0.36},
  v5p: {usd: 4.2, spot_usd: 1.26},
  v6e: {usd: 2.7, spot_usd: 0.81},
};

/** How many chips a type has: its number counts cores up to v4 and for v5p, of which a chip has two, and chips otherwise. */
export function chipsOf(accelerator: string): {generation: string; chips: number} | undefined {
  const [, generation = '', size = ''] = /^(v2|v3|v4|v5p|v5litepod|v6e)-(\d{1,5})$/.exec(accelerator) ?? [];
  if (!generation) return undefined;
  const number = Number(size);
  return {generation, chips: ['v5litepod', 'v6e'].includes(generation) ? number : number / 2};
}

/** Dollars an hour for one node, or null when nobody knows. */
export function usdPerHour(
  prices: Prices,
  {accelerator, spot, zone}: {accelerator: string; spot: boolean; zone: string},
): number | null {
  const type = chipsOf(accelerator);
  if (!type) return null;
  const region = zone.slice(0, zone.lastIndexOf('-'));
  const price = prices[`${type.generation}@${region}`] ?? prices[type.generation];
  return price ? type.chips * (spot ? price.spot_usd : price.usd) : null;
}
