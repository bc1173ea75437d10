import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {readFleet} from '../../client/cloud/fleet.ts';
import {apply, publishLine} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import type {Ceiling} from '../../client/json/tpus.ts';
import {CliError} from '../../client/text/errors.ts';
import {counted, dollarText} from '../../client/text/format.ts';
import {print, warn} from '../../client/text/output.ts';
import {nearText} from '../../shared/contracts/near-names.ts';
import {readPrices} from '../../shared/control-plane/documents/prices.ts';
import {usdPerHour} from '../../shared/domain/billing/prices.ts';
import {poolOf} from '../../shared/domain/deployment.ts';
import {parseWorkerName} from '../../shared/domain/names.ts';
import type {Pool} from '../../shared/domain/records/pool.ts';
import {hasEnded} from '../../shared/domain/records/worker.ts';
import {type PoolChange, scaleMessage} from '../pools/scale.ts';
import {recreate} from './recreate.ts';

type Options = CloudOptions & PoolChange;

/** Raises the ceiling of a pool, or fills the slot of a deleted TPU again. */
export async function create(target: string | undefined, options: Options): Promise<void> {
  if (target !== undefined && parseWorkerName(target)) return refill(target, options);
  const message = scaleMessage(target, options);
  await withCloud(options, async cloud => {
    const {connection} = cloud;
    const name = target ?? poolOf(connection.deployment);
    const fleet = await readFleet(cloud);
    if (!fleet.names.includes(name))
      throw new CliError(
        `There is no pool "${name}": \`gleaner pool create\` creates one${nearText(name, fleet.names)}`,
      );
    const command = publishLine(connection, 'control', message);
    if (options.dry_run) return print<'tpus create'>(options.json, {command}, [command]);
    const done = await apply(cloud, message);
    const pool = (await readFleet(cloud)).pools.find(({pool}) => pool === name);
    const ceiling = pool ? await ceilingOf(cloud, pool) : null;
    print<'tpus create'>(options.json, {done, ceiling}, [done, ...(ceiling ? [ceilingText(ceiling)] : [])]);
  });
}

/** Ends the hold of a deleted TPU. A TPU that runs is left alone. */
async function refill(name: string, options: Options): Promise<void> {
  await withCloud(options, async cloud => {
    const found = (await readFleet(cloud)).workers.find(worker => worker.name === name);
    if (found && !hasEnded(found))
      throw new CliError(
        `Failed to create ${name}: it exists and is ${found.phase}; \`gleaner tpus recreate ${name}\` replaces it`,
      );
  });
  return recreate([name], options);
}

export async function ceilingOf({store}: Cloud, pool: Pool): Promise<Ceiling> {
  const prices = await readPrices({store, log: warn}, [pool]);
  const each = pool.zones.map(zone => ({zone, usd: usdPerHour(prices, {...pool, zone})}));
  const a_set = each.reduce((sum, {usd}) => sum + (usd ?? 0), 0);
  return {
    pool: pool.pool,
    most_tpus: pool.zones.length * pool.workers_per_zone,
    most_usd_per_hour: a_set * pool.workers_per_zone,
    unknown_zones: each.filter(({usd}) => usd === null).map(({zone}) => zone),
  };
}

export function ceilingText({most_tpus, most_usd_per_hour, unknown_zones}: Ceiling): string {
  const unknown = unknown_zones.length === 0 ? '' : `, and an unknown price in ${unknown_zones.join(', ')}`;
  return `A ceiling of ${counted(most_tpus, 'TPU')}, at most ${dollarText(most_usd_per_hour)} an hour${unknown}. TPUs come when there is work, and go after it.`;
}
