import {withCloud} from '../../client/cloud/cloud.ts';
import {aliveIn, type Fleet, readFleet, requirePool} from '../../client/cloud/fleet.ts';
import {sendTo} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {counted, dollarText} from '../../client/text/format.ts';
import {print} from '../../client/text/output.ts';
import {keptText} from '../../client/views/tpus.ts';
import {pick} from '../../shared/domain/records/field.ts';
import type {Pool} from '../../shared/domain/records/pool.ts';
import {poolSettings, poolTerms} from '../../shared/domain/records/pool-settings.ts';
import {utcText} from '../../shared/domain/time.ts';
import {checkPool, type NewPool} from '../checks/pool.ts';
import {requireConsent} from '../terminal/ask.ts';

/** Creates a pool, after the checks of what it asks for. */
export async function createPool(
  pool: string,
  options: CloudOptions & NewPool & {check?: boolean},
): Promise<void> {
  const terms = {...pick(poolTerms, options), zones: options.zones};
  const message = {action: 'pool', pool, ...terms, ...pick(poolSettings, options)};
  await withCloud(options, async cloud => {
    if (!options.dry_run && (options.check ?? true)) await checkPool(cloud, pool, options);
    await sendTo(cloud, message, options);
  });
}

export async function deletePool(pool: string, options: CloudOptions): Promise<void> {
  const message = {action: 'delete', pool};
  const consequence = `This deletes pool ${pool} with its settings, its code and the sum of its dollars.`;
  await withCloud(options, async cloud => {
    requirePool(await readFleet(cloud), pool);
    if (!options.dry_run) await requireConsent([consequence], options);
    await sendTo(cloud, message, options);
  });
}

export async function pools(options: CloudOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const fleet = await readFleet(cloud);
    const rows = fleet.names.map((name): Row => {
      const alive = aliveIn(fleet, name).map(worker => worker.name);
      return {...(fleet.pools.find(({pool}) => pool === name) ?? {pool: name}), alive};
    });
    const lines = rows.map(row => poolLine(row, fleet));
    print<'pools'>(options.json, rows, lines);
  });
}

type Row = {pool: string; alive: string[]} | (Pool & {alive: string[]});

function poolLine(row: Row, {workers}: Fleet): string {
  const running = `${counted(row.alive.length, 'TPU')} running`;
  if (!('accelerator' in row)) return `${row.pool}  as the deployment sets it, ${running}`;
  const {accelerator, runtime_version, workers_per_zone, zones, budget_usd, spent_usd, limiter} = row;
  const spot = row.provisioning === 'flex-start' ? 'flex-start' : row.spot ? 'spot' : 'on demand';
  const type = row.provider === 'compute-engine' ? `${accelerator} instances` : accelerator;
  const budget = budget_usd === null ? '' : `, ${dollarText(spent_usd)} of ${dollarText(budget_usd)}`;
  const keepNote = keptText(row, workers, Date.now());
  const stopped =
    limiter.state === 'open' || limiter.since_at === null
      ? ''
      : `, creates stopped since ${utcText(limiter.since_at)}: \`gleaner pool resume ${row.pool}\``;
  return `${row.pool}  ${type}  ${runtime_version}  ${spot}  ${workers_per_zone} in each of ${zones.join(', ')}  ${running}${budget}${keepNote ? `, ${keepNote}` : ''}${stopped}`;
}
