import {withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {readFleet} from '../cloud/fleet.ts';
import {requireConsent} from '../terminal/ask.ts';
import {counted, dollarText} from '../terminal/format.ts';
import {print, say} from '../terminal/output.ts';
import {rowOf, type TpuRow, totalsOf} from '../views/tpus.ts';
import {namedTpus} from './named.ts';
import {printCommands, sendEach} from './send-each.ts';

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
