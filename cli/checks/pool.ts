/** Checks before a pool is created: its type of TPU, the offer of its zones, and its budget. The budget of a run is checked here too. */

import type {Cloud} from '../../client/cloud/cloud.ts';
import {type GoogleApi, googleOf} from '../../client/google/api.ts';
import {warn} from '../../client/text/output.ts';
import {LOCAL_HOSTS} from '../../emulator/tpu/catalog.ts';
import {readPrices} from '../../shared/control-plane/documents/prices.ts';
import {leastBudget} from '../../shared/domain/billing/cost.ts';
import {type Prices, usdPerHour} from '../../shared/domain/billing/prices.ts';
import {
  acceleratorProblem,
  MAX_HOSTS,
  ONE_HOST,
  runtimeOf,
  runtimeProblem,
} from '../../shared/domain/fleet/accelerators.ts';
import type {ValuesOf} from '../../shared/domain/records/field.ts';
import type {Pool} from '../../shared/domain/records/pool.ts';
import type {poolSettings, poolTerms} from '../../shared/domain/records/pool-settings.ts';
import {imagePath, machineTypeOf, type Provider} from '../../shared/domain/records/providers.ts';
import {isForbidden, isNotFound, kindOf} from '../../shared/google/errors.ts';
import {type Finding, refuseProblems} from './findings.ts';

export type NewPool = Partial<ValuesOf<typeof poolTerms & typeof poolSettings>> & {
  accelerator: string;
  zones: string[];
};

/** Throws `CliError` where no TPU of the pool could exist. */
export async function checkPool({connection, store}: Cloud, name: string, pool: NewPool): Promise<void> {
  const {accelerator, provider = 'tpu-api', zones, budget_usd, spot = true} = pool;
  const {runtime_version = runtimeOf(accelerator, provider)} = pool;
  const what = `create pool ${name}`;
  const wrong =
    acceleratorProblem(accelerator, provider, connection.is_google ? MAX_HOSTS : LOCAL_HOSTS) ??
    runtimeProblem(accelerator, runtime_version, provider);
  if (wrong !== undefined) refuseProblems(what, [{problem: wrong}]);
  const offer = {zones, accelerator, runtime_version, provider};
  const findings: Finding[] = await checkOffer(googleOf(connection), connection.project, offer);
  if (budget_usd) {
    const prices = await readPrices({store, log: warn}, [{accelerator}]);
    findings.push(...checkBudget(budget_usd, {accelerator, spot, zones}, prices));
  }
  refuseProblems(what, findings);
}

type Offer = {zones: readonly string[]; accelerator: string; runtime_version: string; provider: Provider};
type Lack = {zone: string; lacks: string};

/** Addresses that exist where a zone has the offer, each with the part of the offer that it stands for. */
function addressesOf(
  project: string,
  zone: string,
  {accelerator, runtime_version, provider}: Offer,
): [part: string, address: string][] {
  if (provider === 'compute-engine') {
    const at = 'compute.googleapis.com/compute/v1/';
    const machine = machineTypeOf(accelerator) ?? accelerator;
    return [
      [accelerator, `${at}projects/${project}/zones/${zone}/machineTypes/${machine}`],
      [runtime_version, `${at}${imagePath(runtime_version)}`],
    ];
  }
  const at = `tpu.googleapis.com/v2/projects/${project}/locations/${zone}`;
  return [
    [accelerator, `${at}/acceleratorTypes/${accelerator}`],
    [runtime_version, `${at}/runtimeVersions/${runtime_version}`],
  ];
}

/** Zones without the type or without the runtime version. Throws for an API that does not answer. */
export async function lacksOf(api: GoogleApi, project: string, offer: Offer): Promise<Lack[]> {
  const lacks: Lack[] = [];
  for (const zone of offer.zones)
    for (const [part, address] of addressesOf(project, zone, offer))
      await api.call('GET', address).catch((error: unknown) => {
        const isHidden = isNotFound(error) || isForbidden(error);
        if (!isHidden || kindOf(error) === 'early') throw error;
        lacks.push({zone, lacks: part});
      });
  return lacks;
}

export async function checkOffer(api: GoogleApi, project: string, offer: Offer): Promise<Finding[]> {
  try {
    const lacks = await lacksOf(api, project, offer);
    return lacks.map(({zone, lacks}) => ({
      problem: `${zone} has no ${lacks}: take another zone, or ask for TPU quota there`,
    }));
  } catch (error) {
    return [{unchecked: `the offer of ${offer.zones.join(', ')}. ${(error as Error).message}`}];
  }
}

/** Region with the lowest prices. */
const CHEAP_ZONE = 'us-central1-a';

/** `pool`: undefined for a pool whose TPUs are as deployed, which has at least the price of the cheapest TPU. */
export function checkBudget(
  budget_usd: number,
  pool: Pick<Pool, 'accelerator' | 'spot' | 'zones'> | undefined,
  prices: Prices,
): Finding[] {
  const types = pool
    ? pool.zones.map(zone => ({...pool, zone}))
    : ONE_HOST.map(accelerator => ({accelerator, spot: true, zone: CHEAP_ZONE}));
  const known = types.flatMap(type => usdPerHour(prices, type) ?? []);
  const what = pool?.accelerator ?? 'TPU';
  if (known.length === 0)
    return [{unchecked: `the budget, because the price of ${what} is unknown: set prices/chips`}];
  const least = leastBudget(Math.min(...known));
  if (budget_usd >= least) return [];
  const enough = (Math.ceil(least * 100) / 100).toFixed(2);
  return [
    {
      problem: `a budget of $${budget_usd} is too small for one ${what}, whose shortest life costs $${enough}: give --budget-usd ${enough} or more`,
    },
  ];
}
