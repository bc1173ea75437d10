import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {readFleet} from '../../client/cloud/fleet.ts';
import {outcomeOf, publish, publishLine} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {counted, dollarText} from '../../client/text/format.ts';
import {print, printJson, printText, say} from '../../client/text/output.ts';
import {type TpuRow, totalsOf, tpuRow} from '../../client/views/tpus.ts';
import {forEachConcurrently} from '../../shared/control-plane/calls/concurrency.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import {requireConsent} from '../terminal/ask.ts';
import {namedTpus} from './named.ts';

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
export async function sendEach(
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
