/** `gleaner run delete`: counts what a run that is over has, asks, and waits until the control plane has deleted it. */
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {unknownRun} from '../../client/cloud/fleet.ts';
import {apply, send} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {CliError} from '../../client/text/errors.ts';
import {bytesText, counted} from '../../client/text/format.ts';
import {print, say} from '../../client/text/output.ts';
import {runRecords} from '../../shared/control-plane/documents/documents.ts';
import type {Deleted} from '../../shared/control-plane/runs/delete-run.ts';
import {decideDeleteRun} from '../../shared/domain/commands/commands.ts';
import {prefixesOf} from '../../shared/domain/names.ts';
import {requireConsent} from '../terminal/ask.ts';
import {withClock} from '../terminal/progress-clock.ts';
import {resultOf} from './task-result.ts';

export async function deleteRun(run: string, options: CloudOptions): Promise<void> {
  const message = {action: 'delete', run};
  if (options.dry_run) return send(message, options);
  await withCloud(options, async cloud => {
    const {store} = cloud;
    const found = await runRecords.get(store, run);
    if (!found) throw await unknownRun(store, run);
    const decision = decideDeleteRun(run, found, Date.now());
    if (decision.kind === 'rejected') throw new CliError(`Failed to delete the run: ${decision.reason}`);
    const all = await withClock('The objects of the run have been counted', () =>
      countObjects(cloud, prefixesOf(run)),
    );
    const asked = `This deletes run ${run} for good: ${objectsText(all)}, its documents and its events.`;
    const stays = await staysOf(cloud, run);
    if (options.yes) say(asked);
    await requireConsent([asked, ...stays], options);
    await apply(cloud, message);
    await withClock('The run is being deleted', async clock => {
      const {reason, outcome} = await resultOf(store, {task: 'delete', run}, ({cursor, result}) => {
        const {objects} = JSON.parse(cursor || '{"objects":0}') as Deleted;
        clock.what = `${result ?? `${counted(objects, 'object')} of ${all.objects} deleted`}; this has worked`;
      });
      if (outcome !== 'applied') throw new CliError(`Failed to delete run ${run}: ${reason}`);
    });
    print<'run delete'>(options.json, {run, ...all, stays}, [
      `run ${run} is deleted: ${objectsText(all)}`,
      ...stays,
    ]);
  });
}

async function countObjects({objects}: Cloud, prefixes: readonly string[]): Promise<Deleted> {
  const all: Deleted = {objects: 0, size_bytes: 0};
  for (const prefix of prefixes)
    for (const {size_bytes} of await objects.list(prefix)) {
      all.objects += 1;
      all.size_bytes += size_bytes;
    }
  return all;
}

const objectsText = ({objects, size_bytes}: Deleted) =>
  `${counted(objects, 'object')} of ${bytesText(size_bytes)}`;

/** What is left of the run afterwards. */
async function staysOf(cloud: Cloud, run: string): Promise<string[]> {
  const folders = prefixesOf(run).map(prefix => `set-aside/${prefix}`);
  const aside = await countObjects(cloud, folders);
  const {is_google, bucket} = cloud.connection;
  const stays = ['What the run has cost stays in the sums of its pool and of the month.'];
  if (is_google)
    stays.unshift(
      'Cloud Storage keeps and bills deleted objects for 7 days: `gcloud storage restore` brings them back.',
    );
  if (aside.objects > 0)
    stays.unshift(
      `${objectsText(aside)} in gs://${bucket}/set-aside/ stay: a worker found them in the place of shards.`,
    );
  return stays;
}
