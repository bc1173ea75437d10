import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {readFleet} from '../../client/cloud/fleet.ts';
import {outcomeOf, publish, publishLine} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {counted, dollarText} from '../../client/text/format.ts';
import {print, printJson, printText, say} from '../../client/text/output.ts';
import {rowOf, type TpuRow, totalsOf} from '../../client/views/tpus.ts';
import {forEachConcurrently} from '../../shared/control-plane/calls/concurrency.ts';
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
    const messages = chosen.map(({name}) => ({action: 'delete', worker: name}) as const);
    if (options.dry_run) return printCommands(cloud, messages, options);
    const rows = chosen.map(worker => rowOf(worker, fleet.pools, Date.now()));
    await announce(deletionLines(rows), options);
    await sendEach(cloud, messages, options);
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

/** TPUs that a question lists by name. */
const MOST_LISTED = 20;

export function rowLines(rows: readonly TpuRow[]): string[] {
  const lines = rows
    .slice(0, MOST_LISTED)
    .map(({tpu, status, work}) => `  ${tpu}  ${status}${work ? `  ${work} goes back to the queue` : ''}`);
  const more = rows.length - lines.length;
  return more > 0 ? [...lines, `  and ${counted(more, 'further TPU')}`] : lines;
}

/** Asks, or with `--yes` tells the consequences alone. */
export async function announce(consequences: readonly string[], options: CloudOptions): Promise<void> {
  if (options.yes) for (const line of consequences) say(line);
  await requireConsent(consequences, options);
}

type TpuMessage = {action: 'recreate' | 'delete'; worker: string};
type TpuOutcome = {tpu: string; outcome: string; reason: string};

/** Messages that wait for their outcome at once. */
const AT_ONCE = 8;

/** Publishes the messages and waits until each is applied or rejected. Exit code 1: a message was rejected. */
export async function sendEach(
  cloud: Cloud,
  messages: readonly TpuMessage[],
  {json}: CloudOptions,
): Promise<void> {
  const outcomes = new Map<string, TpuOutcome>();
  const sendOne = async (message: TpuMessage) => {
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

/** Prints the command of gcloud for each message. */
export function printCommands(
  {connection}: Cloud,
  messages: readonly TpuMessage[],
  {json}: CloudOptions,
): void {
  const commands = messages.map(message => publishLine(connection, 'control', message));
  print<'tpus delete'>(json, {commands}, commands);
}
