/** Rebuilds the documents of streams from the bucket, page by page, while workers continue. */
import {paths, streamPrefix} from '../../domain/names.ts';
import type {Run} from '../../domain/records/run.ts';
import {type Stream, withRebuilt} from '../../domain/records/stream.ts';
import type {ObjectInfo} from '../../ports/ports.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Deps} from '../deps.ts';
import {shardRecords, streamRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {type Comparison, compareStream, originsAmong, type StreamSurvey} from './compare-streams.ts';
import {registerStream, streamsAmong} from './register-stream.ts';

const LISTED = 500;
/** Shard documents of one transaction: Firestore accepts 10 MiB, and each document has less than 1 KiB. */
const SHARDS_AT_ONCE = 200;
const ATTEMPTS = 5;

/**
 * Repairs the streams of one page of objects. Correct documents are not changed, so a page may be repeated. Returns the findings, and the
 * name after which the next page begins.
 */
export async function rebuildPage(
  deps: Deps,
  parent: Run,
  after: string,
): Promise<{found: StreamSurvey[]; next: string | undefined}> {
  const start = after === '' ? {} : {start: after};
  const listed = await deps.objects.list(streamPrefix(parent.run), {...start, limit: LISTED});
  const isLast = listed.length < LISTED;
  const all = streamsAmong(listed).filter(({object}) => object.name > after);
  const last = all.at(-1)?.stream;
  // The next page may have a second object with the last index.
  const whole = all.filter(({stream}) => isLast || stream !== last);
  const page = whole.length > 0 ? whole : all;
  const surveys: StreamSurvey[] = [];
  await forEachConcurrently(await originsAmong(deps, page), async object =>
    surveys.push(await rebuildStream(deps, parent, object)),
  );
  const end = page.at(-1)?.object.name ?? listed.at(-1)?.name;
  return {found: surveys, next: isLast ? undefined : end};
}

async function rebuildStream(deps: Deps, parent: Run, object: ObjectInfo): Promise<StreamSurvey> {
  const {run} = parent;
  const {survey: first, known} = await compareStream(deps, run, object);
  if (first.finding === 'right' || first.finding === 'left-alone') return first;
  const {stream} = first;
  if (first.finding === 'broken' && known) await dropForeign(deps, known);
  if (first.finding === 'missing' || first.finding === 'broken')
    await registerStream(deps, parent, object.name, stream);
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const comparison = await compareStream(deps, run, object);
    if (comparison.survey.finding !== 'different' || (await mend(deps, comparison))) return first;
  }
  throw new Error(`Failed to rebuild ${run}/${stream}: it changed ${ATTEMPTS} times; the task tries again`);
}

/** Deletes the document of a stream that was registered for another object than its shards. */
async function dropForeign(deps: Deps, {run, stream, updated_at}: Stream): Promise<void> {
  await deps.store.transaction(async tx => {
    const current = await streamRecords.get(tx, run, stream);
    if (current?.updated_at === updated_at) tx.delete(paths.stream(run, stream));
  });
}

/** Writes the shard documents, then the stream. Returns false if the stream's document changed since the comparison. */
async function mend(
  deps: Deps,
  {survey: {run, stream, why}, known, crc32c, epoch, progress, shards, kept_shards}: Comparison,
): Promise<boolean> {
  for (let first = 0; first < shards.length; first += SHARDS_AT_ONCE)
    await deps.store.transaction(async tx => {
      for (const shard of shards.slice(first, first + SHARDS_AT_ONCE))
        shardRecords.set(tx, paths.shard(run, stream, shard.shard), shard);
    });
  const stored = await deps.store.query(paths.shards(run, stream));
  const extra = stored.filter(({data}) => !(Number(data.shard) <= progress.total_shards));
  return deps.store.transaction(async tx => {
    const current = await streamRecords.get(tx, run, stream);
    if (!current || current.updated_at !== known?.updated_at) return false;
    const now = deps.now();
    streamRecords.set(tx, {...withRebuilt(current, {progress, epoch, kept_shards}, now), crc32c});
    for (const {path} of extra) tx.delete(path);
    const text = `Stream ${run}/${stream} is rebuilt from the bucket: ${why}`;
    recordEvent(tx, {kind: 'stream', run, stream, text}, now);
    return true;
  });
}
