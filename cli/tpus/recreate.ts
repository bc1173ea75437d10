import {withCloud} from '../../client/cloud/cloud.ts';
import {readFleet} from '../../client/cloud/fleet.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {counted} from '../../client/text/format.ts';
import {print} from '../../client/text/output.ts';
import {tpuRow} from '../../client/views/tpus.ts';
import {hasEnded, type Worker} from '../../shared/domain/records/worker.ts';
import {rowLines, sendEach} from './delete.ts';
import {namedTpus} from './named.ts';

const RECOVERY = 'The tick recreates lost TPUs by itself: nothing is sent.';

/** Recreates TPUs, or with `--preempted` says which lost TPUs the tick recreates by itself. */
export async function recreate(
  names: string[],
  options: CloudOptions & {preempted?: boolean},
): Promise<void> {
  await withCloud(options, async cloud => {
    const fleet = await readFleet(cloud);
    if (options.preempted) {
      const lost = fleet.workers.filter(isLost).map(({name}) => name);
      const text = lost.length > 0 ? `lost now: ${lost.join(', ')}` : 'no TPU is lost now';
      return print<'tpus recreate'>(options.json, {results: [], lost}, [RECOVERY, text]);
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

function isLost({phase, recreate, held}: Worker): boolean {
  return phase === 'deleting' && !recreate && !held;
}
