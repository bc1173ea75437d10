/** `gleaner tpus create`, `recreate` and `delete`. */
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {type Fleet, readFleet, requirePool} from '../../client/cloud/fleet.ts';
import {apply, outcomeOf, publish, publishLine} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import type {Ceiling} from '../../client/json/tpus.ts';
import {CliError, UsageError} from '../../client/text/errors.ts';
import {counted, dollarText} from '../../client/text/format.ts';
import {print, printJson, printText, say, warn} from '../../client/text/output.ts';
import {type TpuRow, totalsOf, tpuRow} from '../../client/views/tpus.ts';
import {nearText} from '../../shared/contracts/near-names.ts';
import {forEachConcurrently} from '../../shared/control-plane/calls/concurrency.ts';
import {readPrices} from '../../shared/control-plane/documents/prices.ts';
import {usdPerHour} from '../../shared/domain/billing/prices.ts';
import {poolOf} from '../../shared/domain/deployment.ts';
import {parseWorkerName} from '../../shared/domain/names.ts';
import type {Pool} from '../../shared/domain/records/pool.ts';
import {hasEnded, type Worker} from '../../shared/domain/records/worker.ts';
import {type PoolChange, scaleMessage} from '../pools/scale.ts';
import {requireConsent} from '../terminal/ask.ts';

/** Deletes TPUs. Their slots stay empty until `recreate`. */
export async function remove(
  names: string[],
  options: CloudOptions & {zone?: string; all?: boolean},
): Promise<void> {
  await withCloud(options, async cloud => {
    const fleet = await readFleet(cloud);
    const chosen = namedTpus(fleet, names, options);
    if (chosen.length === 0) return print<'tpus delete'>(options.json, {results: []}, ['no TPU to delete']);
    const rows = chosen.map(worker => tpuRow(worker, fleet.pools, Date.now()));
    await sendEach(cloud, 'delete', chosen, deletionLines(rows), options);
  });
}

/** Consequences of a delete: dollars saved, and work that goes back to the queue. */
export function deletionLines(rows: readonly TpuRow[]): string[] {
  const {usd_per_hour} = totalsOf(rows);
  const at_work = rows.filter(({work}) => work !== null);
  return [
    `${counted(rows.length, 'TPU')} will be deleted, which saves ${dollarText(usd_per_hour)} an hour:`,
    ...rowLines(rows),
    ...(at_work.length > 0 ? ['Stored shards stay. Work that is not stored is done again.'] : []),
    `${rows.length === 1 ? 'The slot stays' : 'The slots stay'} empty until \`gleaner tpus recreate NAME\`.`,
  ];
}

const MOST_LISTED = 20;

export function rowLines(rows: readonly TpuRow[]): string[] {
  const lines = rows
    .slice(0, MOST_LISTED)
    .map(({tpu, status, work}) => `  ${tpu}  ${status}${work ? `  ${work} goes back to the queue` : ''}`);
  const more = rows.length - lines.length;
  return more > 0 ? [...lines, `  and ${counted(more, 'further TPU')}`] : lines;
}

const AT_ONCE = 8;

/**
 * Asks, or with `--yes` tells the consequences alone, publishes a message for each TPU, and waits until each is applied or rejected; or
 * prints the commands of gcloud. Exit code 1: a message was rejected.
 */
async function sendEach(
  cloud: Cloud,
  action: 'recreate' | 'delete',
  chosen: readonly Worker[],
  consequences: readonly string[],
  {json, yes, dry_run}: CloudOptions,
): Promise<void> {
  const messages = chosen.map(({name}) => ({action, worker: name}));
  if (dry_run) {
    const commands = messages.map(message => publishLine(cloud.connection, 'control', message));
    return print<'tpus delete'>(json, {commands}, commands);
  }
  if (yes) consequences.forEach(say);
  if (consequences.length > 0) await requireConsent(consequences, {yes});
  const outcomes = new Map<string, {tpu: string; outcome: string; reason: string}>();
  const sendOne = async (message: {worker: string}) => {
    const {outcome, reason} = await outcomeOf(cloud.store, await publish(cloud, 'control', message));
    outcomes.set(message.worker, {tpu: message.worker, outcome, reason});
    if (!json) printText([outcome === 'applied' ? reason : `${message.worker}: rejected: ${reason}`]);
  };
  await forEachConcurrently(messages, sendOne, AT_ONCE);
  const results = messages.flatMap(({worker}) => outcomes.get(worker) ?? []);
  const rejected = results.filter(({outcome}) => outcome !== 'applied').length;
  if (json) printJson<'tpus delete'>({results});
  else if (rejected > 0) printText([`${counted(rejected, 'message')} of ${results.length} rejected`]);
  if (rejected > 0) process.exitCode = 1;
}

type Choice = {zone?: string | undefined; all?: boolean | undefined};

/** TPUs of the names, or with `--zone` and `--all` every TPU that is not gone. Throws `CliError` for an unknown name. */
export function namedTpus({workers}: Fleet, names: readonly string[], {zone, all}: Choice): Worker[] {
  const ways = [names.length > 0, zone !== undefined, all === true].filter(Boolean).length;
  if (ways !== 1) throw new UsageError('Give names of TPUs, --zone ZONE or --all');
  if (names.length === 0)
    return workers.filter(worker => worker.phase !== 'gone' && (zone === undefined || worker.zone === zone));
  const unknown = [...new Set(names)].filter(name => !workers.some(worker => worker.name === name));
  if (unknown.length > 0) throw unknownTpu(unknown, {workers});
  return workers.filter(({name}) => names.includes(name));
}

/** Error for names that no TPU has, with similar names. */
export function unknownTpu(unknown: readonly string[], {workers}: Pick<Fleet, 'workers'>): CliError {
  const known = workers.map(({name}) => name);
  const lines = unknown.map(name => `There is no TPU "${name}"${nearText(name, known)}`);
  return new CliError(`${lines.join('\n')}\n\`gleaner tpus list --all\` lists the TPUs`);
}

const RECOVERY = 'The tick recreates lost TPUs by itself: nothing is sent.';

/** Recreates TPUs, or with `--preempted` says which lost TPUs the tick recreates by itself. */
export async function recreate(
  names: string[],
  options: CloudOptions & {preempted?: boolean},
): Promise<void> {
  await withCloud(options, async cloud => {
    const fleet = await readFleet(cloud);
    if (options.preempted) {
      const lostTpus = fleet.workers
        .filter(({phase, recreate, held}) => phase === 'deleting' && !recreate && !held)
        .map(({name}) => name);
      const text = lostTpus.length > 0 ? `lost TPUs: ${lostTpus.join(', ')}` : 'no TPU is lost';
      return print<'tpus recreate'>(options.json, {results: [], lost: lostTpus}, [RECOVERY, text]);
    }
    const chosen = namedTpus(fleet, names, {});
    const rows = chosen
      .filter(worker => !hasEnded(worker))
      .map(worker => tpuRow(worker, fleet.pools, Date.now()));
    const what = `${counted(rows.length, 'TPU')} will be deleted, and created again if there is work:`;
    const consequences = rows.length > 0 ? [what, ...rowLines(rows)] : [];
    await sendEach(cloud, 'recreate', chosen, consequences, options);
  });
}

type TpuCreateOptions = CloudOptions & PoolChange;

/** Raises the ceiling of a pool, or fills the slot of a deleted TPU again. */
export async function create(target: string | undefined, options: TpuCreateOptions): Promise<void> {
  if (target !== undefined && parseWorkerName(target)) return refill(target, options);
  const message = scaleMessage(target, options);
  await withCloud(options, async cloud => {
    const {connection} = cloud;
    const name = target ?? poolOf(connection.deployment);
    const fleet = await readFleet(cloud);
    requirePool(fleet, name);
    const command = publishLine(connection, 'control', message);
    if (options.dry_run) return print<'tpus create'>(options.json, {command}, [command]);
    const done = await apply(cloud, message);
    const pool = (await readFleet(cloud)).pools.find(({pool}) => pool === name);
    const ceiling = pool ? await ceilingOf(cloud, pool) : null;
    print<'tpus create'>(options.json, {done, ceiling}, [done, ...(ceiling ? [ceilingText(ceiling)] : [])]);
  });
}

/** Ends the hold of a deleted TPU. A TPU that runs is left alone. */
async function refill(name: string, options: TpuCreateOptions): Promise<void> {
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
  return `At most ${counted(most_tpus, 'TPU')}, for ${dollarText(most_usd_per_hour)} an hour${unknown}. TPUs are created when there is work, and deleted after it.`;
}
