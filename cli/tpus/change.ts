import {hasEnded, type Worker} from '../../shared/domain/worker/worker.ts';
import type {Where} from '../cloud/connect.ts';
import {withCloud} from '../cloud/send-message.ts';
import {readFleet} from '../hosts/targets.ts';
import {requireConsent} from '../terminal/ask.ts';
import {counted, dollarText} from '../terminal/format.ts';
import {print, say} from '../terminal/output.ts';
import {namedTpus} from './named.ts';
import {printCommands, sendEach} from './send-each.ts';
import {rowOf, type TpuRow, totalsOf} from './tpu-row.ts';

type Options = Where & {yes?: boolean; dryRun?: boolean; json?: boolean};

/** Deletes TPUs. Their slots stay empty until `recreate`. */
export async function remove(
  names: string[],
  options: Options & {zone?: string; all?: boolean},
): Promise<void> {
  await withCloud(options, async cloud => {
    const fleet = await readFleet(cloud);
    const chosen = namedTpus(fleet, names, options);
    if (chosen.length === 0) return print(options.json, {results: []}, ['no TPU to delete']);
    const messages = chosen.map(({name}) => ({action: 'delete', worker: name}) as const);
    if (options.dryRun) return printCommands(cloud, messages, options);
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

function rowLines(rows: readonly TpuRow[]): string[] {
  const lines = rows
    .slice(0, MOST_LISTED)
    .map(({tpu, status, work}) => `  ${tpu}  ${status}${work ? `  ${work} goes back to the queue` : ''}`);
  const more = rows.length - lines.length;
  return more > 0 ? [...lines, `  and ${counted(more, 'further TPU')}`] : lines;
}

/** Asks, or with `--yes` tells the consequences alone. */
async function announce(consequences: readonly string[], {yes = false}: Options): Promise<void> {
  if (yes) for (const line of consequences) say(line);
  await requireConsent(consequences, {yes});
}

const RECOVERY = 'The tick recreates lost TPUs by itself: nothing is sent.';

/** Recreates TPUs, or with `--preempted` says which lost TPUs the tick recreates by itself. */
export async function recreate(names: string[], options: Options & {preempted?: boolean}): Promise<void> {
  await withCloud(options, async cloud => {
    const fleet = await readFleet(cloud);
    if (options.preempted) {
      const lost = fleet.workers.filter(isLost).map(({name}) => name);
      const text = lost.length > 0 ? `lost now: ${lost.join(', ')}` : 'no TPU is lost now';
      return print(options.json, {results: [], lost}, [RECOVERY, text]);
    }
    const chosen = namedTpus(fleet, names, {});
    const messages = chosen.map(({name}) => ({action: 'recreate', worker: name}) as const);
    if (options.dryRun) return printCommands(cloud, messages, options);
    const running = chosen.filter(worker => !hasEnded(worker));
    const rows = running.map(worker => rowOf(worker, fleet.pools, Date.now()));
    if (rows.length > 0) await announce(recreationLines(rows), options);
    await sendEach(cloud, messages, options);
  });
}

function isLost({phase, recreate, held}: Worker): boolean {
  return phase === 'deleting' && !recreate && !held;
}

function recreationLines(rows: readonly TpuRow[]): string[] {
  return [
    `${counted(rows.length, 'TPU')} will be deleted, and created again if there is work:`,
    ...rowLines(rows),
  ];
}
