/** Compares the checkpoint of each leased stream with its shards in the bucket, because an event may have been lost. */
import {parseWork} from '../../domain/names.ts';
import type {Stream} from '../../domain/records/stream.ts';
import {isAlive, type Worker} from '../../domain/records/worker.ts';
import {goneText} from '../../domain/run/summarize.ts';
import {isHeldBy} from '../../domain/stream/lease.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Deps} from '../deps.ts';
import {
  LIVING,
  leftAlone,
  runRecords,
  skipIfInvalid,
  streamRecords,
  workerRecords,
} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {clearWork, workOf} from '../documents/lease-documents.ts';
import {auditStream} from './advance-checkpoint.ts';
import {registerStream} from './register-stream.ts';

const PAGE = 500;

/** Audits the streams of one page of workers. Returns the worker after which the next page begins. */
export async function auditPage(deps: Deps, after: string): Promise<string | undefined> {
  const query = {where: [LIVING], limit: PAGE, ...(after === '' ? {} : {after})};
  const page = await deps.store.query('workers', query);
  const workers = workerRecords.parseAll(page, leftAlone(deps.log));
  await forEachConcurrently(workers, worker => skipIfInvalid(deps.log, () => audit(deps, worker)));
  return page.length < PAGE ? undefined : page.at(-1)?.id;
}

async function audit(deps: Deps, worker: Worker): Promise<void> {
  const work = parseWork(worker.work);
  if (!work || !isAlive(worker)) return;
  const advanced = await auditStream(deps, work.run, work.stream);
  const audited = advanced?.status === 'in_progress' ? await compareObject(deps, advanced) : advanced;
  if (audited?.status !== 'completed' && !(audited && isHeldBy(audited, worker)))
    await clearStaleWork(deps, worker);
}

/** Registers an overwritten object again, and records a deleted one. Returns the updated stream. */
async function compareObject(deps: Deps, known: Stream): Promise<Stream | undefined> {
  const {run, stream, object, generation} = known;
  const present = await deps.objects.head(object);
  if (present?.generation === generation) return known;
  if (!present) {
    await recordGone(deps, known);
    return known;
  }
  await registerStream(deps, await runRecords.get(deps.store, run), object, stream);
  return streamRecords.get(deps.store, run, stream);
}

/** Records that a stream object was deleted, so its shards cannot be verified. The worker continues from its copy. */
async function recordGone(deps: Deps, {run, stream, object, last_error}: Stream): Promise<void> {
  const text = goneText({object, count: 1});
  if (last_error === text) return;
  const decide = (current: Stream) =>
    current.status === 'in_progress' && current.object === object
      ? {...current, last_error: text}
      : undefined;
  await streamRecords.change(deps.store, [run, stream], decide, tx =>
    recordEvent(tx, {kind: 'stream', run, stream, object, text}, deps.now()),
  );
}

/** Clears the work of a worker that does not hold its stream. Its agent is notified at the next heartbeat. */
async function clearStaleWork(deps: Deps, {name}: Worker): Promise<void> {
  await deps.store.transaction(async tx => {
    const worker = await workerRecords.get(tx, name);
    if (worker?.work && !(await workOf(deps.log, tx, worker))) clearWork(tx, worker);
  });
}
