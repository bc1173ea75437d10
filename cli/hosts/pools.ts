import type {Where} from '../connect.ts';
import {send, withCloud} from '../control.ts';

import {dollarText} from '../format.ts';
import {print} from '../output.ts';
import {aliveIn, readFleet} from './targets.ts';

type Options = Where & {json?: boolean; dryRun?: boolean};

export async function pools(options: Options): Promise<void> {
  await withCloud(options, async cloud => {
    const fleet = await readFleet(cloud);
    const rows = fleet.names.map(name => ({
      ...(fleet.pools.find(({pool}) => pool === name) ?? {pool: name}),
      alive: aliveIn(fleet, name).map(worker => worker.name),
    }));
    const lines = rows.map(row => {
      if (!('accelerator' in row))
        return `${row.pool}  as the deployment sets it, ${row.alive.length} workers running`;
      const spot = row.spot ? 'spot' : 'on demand';
      const budget =
        row.budget_usd === null ? '' : `, ${dollarText(row.spent_usd)} of ${dollarText(row.budget_usd)}`;
      return `${row.pool}  ${row.accelerator}  ${row.runtime_version}  ${spot}  ${row.workers_per_zone} in each of ${row.zones.join(', ')}  ${row.alive.length} workers running${budget}`;
    });
    print(options.json, rows, lines);
  });
}

type NewPool = Options & {
  accelerator: string;
  runtimeVersion: string;
  zones: string[];
  workersPerZone: number;
  spot?: boolean;
  pollS?: number;
  budget?: number;
};

export function createPool(name: string, options: NewPool): Promise<void> {
  const {
    accelerator,
    runtimeVersion: runtime_version,
    zones,
    workersPerZone: workers_per_zone,
    spot,
  } = options;
  const {pollS: poll_s, budget: budget_usd} = options;
  const message = {action: 'pool', pool: name, accelerator, runtime_version, zones, workers_per_zone};
  // Undefined fields are not in the JSON.
  return send({...message, spot, poll_s, budget_usd}, options);
}

export function scale(pool: string | undefined, options: Options & {workersPerZone: number}): Promise<void> {
  return send({action: 'scale', pool, workers_per_zone: options.workersPerZone}, options);
}
