/** Deletes what a run has: objects, documents of streams and shards, events, and at last the document of the run. */
import {paths, prefixesOf, stopObject} from '../../domain/names.ts';
import {isOpen} from '../../domain/records/run.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Deps} from '../deps.ts';
import {runRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {taskId} from '../documents/tasks.ts';
import {deleteStream} from './expire-run.ts';

const OBJECTS = 500;
const STREAMS = 20;
/** A transaction has at most 500 writes. */
const EVENTS = 400;

export type Deleted = {objects: number; size_bytes: number};

const DOCUMENTS: Deleted = {objects: 0, size_bytes: 0};

/**
 * Deletes a page of a run that a message marked. Returns what it deleted, and undefined when nothing of the run is left, or when it was not
 * marked. Its stop in the bucket goes shortly before its document, so that a lost database revives no run that is half deleted.
 */
export async function deletePage(deps: Deps, name: string): Promise<Deleted | undefined> {
  const {store, objects} = deps;
  const run = await runRecords.get(store, name);
  if (!run || isOpen(run) || run.expired_at === null) return undefined;
  for (const prefix of prefixesOf(name)) {
    const page = await objects.list(prefix, {limit: OBJECTS});
    if (page.length === 0) continue;
    await forEachConcurrently(page, object => objects.delete(object.name));
    return {objects: page.length, size_bytes: page.reduce((sum, {size_bytes}) => sum + size_bytes, 0)};
  }
  const streams = await store.query(paths.streams(name), {limit: STREAMS});
  await forEachConcurrently(streams, ({path, id}) => deleteStream(deps, run, path, id));
  const events = await store.query('events', {
    where: [{field: 'run', op: '==', value: name}],
    limit: EVENTS,
  });
  await store.transaction(async tx => {
    for (const {path} of events) tx.delete(path);
  });
  if (streams.length + events.length > 0) return DOCUMENTS;
  await objects.delete(stopObject(name));
  await deleteDocument(deps, name);
  return undefined;
}

/** Deletes the document of the run, and its other tasks, which would make it again. */
async function deleteDocument({store, now}: Deps, run: string): Promise<void> {
  await store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    if (!current || isOpen(current)) return;
    for (const task of ['register', 'rebuild', 'finish'] as const) tx.delete(paths.task(taskId({task, run})));
    tx.delete(paths.run(run));
    recordEvent(tx, {kind: 'run', run, text: `Run ${run} is deleted`}, now());
  });
}
