import type {Yield} from '../../domain/fleet/yields.ts';
import {isWaiting} from '../../domain/job/queue.ts';
import {parseWork} from '../../domain/names.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid, workerRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {jobRecords} from '../documents/job-documents.ts';

/** Writes into the document of the worker that it gives its stream back for a job, unless the worker or the job has changed since. */
export async function yieldToJob(deps: Deps, {worker: name, work, job: id}: Yield): Promise<void> {
  await deps.store.transaction(async tx => {
    const worker = await workerRecords.get(tx, name);
    if (worker?.work !== work || worker.yields_to === id) return;
    const job = id === null ? undefined : await skipIfInvalid(deps.log, () => jobRecords.get(deps, tx, id));
    if (id !== null && !(job && isWaiting(job))) return;
    workerRecords.set(tx, {...worker, yields_to: id});
    const stream = parseWork(work);
    if (id === null || !stream) return;
    const text = `${name} gives ${work} back after the shard in hand: job ${id} waits for a worker`;
    recordEvent(tx, {kind: 'stream', ...stream, worker: name, text}, deps.now());
  });
}
