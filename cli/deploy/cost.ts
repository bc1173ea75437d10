/** The most that a deployment can cost an hour. */

import type {MostAnHour} from '../../client/json/clouds.ts';
import {dollarText} from '../../client/text/format.ts';
import {LIST_PRICES, LISTED_ON} from '../../shared/domain/billing/list-prices.ts';
import {bytePrice} from '../../shared/domain/billing/network.ts';
import {ageText, usdPerHour} from '../../shared/domain/billing/prices.ts';
import {UNIT_PRICES} from '../../shared/domain/billing/unit-prices.ts';
import {regionOf} from '../../shared/domain/names.ts';
import type {Resource} from '../terraform/mocked-apply.ts';
import type {Settings} from './settings.ts';

const VCPU_HOUR = UNIT_PRICES.vcpu_s * 3600;
const GIB_HOUR = UNIT_PRICES.gib_s * 3600;

type ServiceConfig = {available_memory: string; available_cpu: string; max_instance_count: number};

/** Output `ceilings` of Terraform, which each plan knows. */
export type Ceilings = {max_workers: number; accelerator: string; zones: string[]};

/** The lower price is that of spot alone. */
const isSpot = ({spot, provisioning}: Settings) => spot !== false && provisioning !== 'flex-start';

/** Every TPU that the ceilings allow in the dearest of the zones, of the first pool's type, and every instance of every function busy. */
export function mostAnHour(
  resources: readonly Resource[],
  {max_workers, accelerator, zones}: Ceilings,
  settings: Settings,
): MostAnHour {
  const spot = isSpot(settings);
  const priced = zones.map(zone => ({zone, usd: usdPerHour(LIST_PRICES, {accelerator, spot, zone})}));
  const dearest = priced.reduce((most, next) => ((next.usd ?? 0) > (most.usd ?? 0) ? next : most));
  const services = resources
    .filter(({type}) => type === 'google_cloudfunctions2_function')
    .flatMap(({values}) => values.service_config as ServiceConfig[]);
  const hourly = services.map(service => {
    const busy = Number(service.available_cpu) * VCPU_HOUR + gibOf(service.available_memory) * GIB_HOUR;
    return service.max_instance_count * busy;
  });
  const gateways = resources.filter(({type}) => type === 'google_compute_router_nat').length;
  return {
    tpus_usd: dearest.usd === null ? null : max_workers * dearest.usd,
    functions_usd: hourly.reduce((sum, usd) => sum + usd, 0),
    nat_usd: gateways * UNIT_PRICES.nat_hour,
    ...{max_workers, accelerator, dearest_zone: dearest.zone, zones},
  };
}

/** Size such as `512Mi` or `1Gi`. */
function gibOf(memory: string): number {
  const [, size = '0', unit] = /^(\d+)(Mi|Gi)$/.exec(memory) ?? [];
  return unit === 'Gi' ? Number(size) : Number(size) / 1024;
}

export function costLines(most: MostAnHour, settings: Settings): string[] {
  const {max_budget_usd, region} = settings;
  const age = ageText(LISTED_ON, Date.now());
  const {tpus_usd, functions_usd, nat_usd, max_workers, accelerator, dearest_zone} = most;
  const tpus = tpus_usd === null ? 'an unknown price' : dollarText(tpus_usd);
  const remote = most.zones.filter(zone => regionOf(zone) !== region);
  const total =
    tpus_usd === null ? 'unknown: set prices/chips' : dollarText(tpus_usd + functions_usd + nat_usd);
  return [
    `Most that an hour of the first pool can cost: ${total}`,
    `  TPUs       ${tpus}: ${max_workers} x ${accelerator} ${isSpot(settings) ? 'on spot' : 'on demand'} in ${dearest_zone}, list prices of ${LISTED_ON}${age ? `, ${age}: the functions read new ones daily` : ''}`,
    `  functions  ${dollarText(functions_usd)}: every instance of every function busy`,
    `  Cloud NAT  ${dollarText(nat_usd)}, and $0.045 for each GiB`,
    `TPUs and network stop at ${dollarText(Number(max_budget_usd))} in a month (max_budget_usd); nothing stops functions and storage.`,
    ...(remote.length > 0
      ? [
          `The bucket is in ${region}, and ${remote.join(', ')} in another region: runs need allow_cross_region, and each GiB between them costs up to ${dollarText(dearestGib(remote, region))}.`,
        ]
      : []),
  ];
}

function dearestGib(zones: readonly string[], region: unknown): number {
  return Math.max(...zones.map(zone => bytePrice(zone, String(region)))) * 1024 ** 3;
}
