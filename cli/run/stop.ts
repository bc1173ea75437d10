import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {unknownRun} from '../../client/cloud/fleet.ts';
import {send, sendTo} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {counted, dollarText, listText} from '../../client/text/format.ts';
import {say} from '../../client/text/output.ts';
import {runRecords, UNFINISHED, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {capped} from '../../shared/domain/billing/network.ts';
import {parseWork, paths} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import {isAlive, type Worker} from '../../shared/domain/records/worker.ts';
import {requireConsent} from '../terminal/ask.ts';

/** Ends a run after a question: deletes the TPUs of the run, and gives up the streams that are not completed. */
export async function stop(run: string, options: CloudOptions): Promise<void> {
  const message = {action: 'stop', run};
  if (options.dry_run) return send(message, options);
  await withCloud(options, async cloud => {
    const found = await runRecords.get(cloud.store, run);
    if (!found) throw await unknownRun(cloud.store, run);
    await requireConsent(await consequencesOf(cloud, found), options);
    await sendTo(cloud, message, options);
  });
}

async function consequencesOf(cloud: Cloud, run: Run): Promise<string[]> {
  // The totals of the run are of its last summary, which may be older than its streams.
  const unfinished = await cloud.store.count(paths.streams(run.run), [UNFINISHED]);
  const workers = await workersOf(cloud, run.run);
  const usd = workers.reduce((sum, {usd_per_hour}) => sum + (usd_per_hour ?? 0), 0);
  return [
    `This ends run ${run.run} for good: it takes no further stream, and nothing resumes it.`,
    `${counted(unfinished, 'stream')} that ${unfinished === 1 ? 'is' : 'are'} not completed will be given up.`,
    workers.length > 0
      ? `TPUs that lose their work (${dollarText(usd)} an hour): ${listText(workers.map(({name}) => name))}.`
      : 'No TPU works on it now.',
    `Stored shards stay: ${counted(run.total_shards, 'shard')} for ${dollarText(capped(run))}.`,
  ];
}

async function workersOf({store}: Cloud, run: string): Promise<Worker[]> {
  const workers = workerRecords.parseAll(await store.query('workers'), ({message}) => say(message));
  return workers.filter(worker => isAlive(worker) && parseWork(worker.work)?.run === run);
}
