import type {Pool} from '../../shared/domain/fleet/pool.ts';
import type {Where} from '../cloud/connect.ts';
import {send, withCloud} from '../cloud/send-message.ts';
import {counted, dollarText, timeText} from '../terminal/format.ts';
import {print} from '../terminal/output.ts';
import {type PoolChange, scaleMessage} from './scale-message.ts';
import {aliveIn, readFleet} from './targets.ts';

type Options = Where & {json?: boolean; dryRun?: boolean};

export async function pools(options: Options): Promise<void> {
  await withCloud(options, async cloud => {
    const fleet = await readFleet(cloud);
    const rows = fleet.names.map(name => ({
      ...(fleet.pools.find(({pool}) => pool === name) ?? {pool: name}),
      alive: aliveIn(fleet, name).map(worker => worker.name),
    }));
    const lines = rows.map(poolLine);
    print(options.json, rows, lines);
  });
}

type Row = {pool: string; alive: string[]} | (Pool & {alive: string[]});

function poolLine(row: Row): string {
  const running = `${counted(row.alive.length, 'TPU')} running`;
  if (!('accelerator' in row)) return `${row.pool}  as the deployment sets it, ${running}`;
  const {accelerator, runtime_version, workers_per_zone, zones, budget_usd, spent_usd, boots} = row;
  const spot = row.spot ? 'spot' : 'on demand';
  const budget = budget_usd === null ? '' : `, ${dollarText(spent_usd)} of ${dollarText(budget_usd)}`;
  const stopped =
    boots.stopped_at === null
      ? ''
      : `, creates stopped since ${timeText(boots.stopped_at)} UTC: \`gleaner pool resume ${row.pool}\``;
  return `${row.pool}  ${accelerator}  ${runtime_version}  ${spot}  ${workers_per_zone} in each of ${zones.join(', ')}  ${running}${budget}${stopped}`;
}

type NewPool = Options & {
  accelerator: string;
  runtimeVersion: string;
  zones: string[];
  workersPerZone: number;
  spot?: boolean;
  pollS?: number;
  budgetUsd?: number;
  /** Earlier name of `budgetUsd`. */
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
  const {pollS: poll_s, budgetUsd: budget_usd = options.budget} = options;
  const message = {action: 'pool', pool: name, accelerator, runtime_version, zones, workers_per_zone};
  // Undefined fields are not in the JSON.
  return send({...message, spot, poll_s, budget_usd}, options);
}

export function scale(pool: string | undefined, options: Options & PoolChange): Promise<void> {
  return send(scaleMessage(pool, options), options);
}

/** Allows creates again after a breaker stopped them. */
export function resumePool(pool: string, options: Options): Promise<void> {
  return send({action: 'resume', pool}, options);
}
