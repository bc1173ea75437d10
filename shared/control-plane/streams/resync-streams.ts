/** Compares the bucket with the documents, page by page, to find streams without a document and checkpoints that missed an event. */
import {streamObject, streamPrefix} from '../../domain/names.ts';
import type {Run} from '../../domain/records/run.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid, streamRecords} from '../documents/documents.ts';
import {advanceStream} from './advance-checkpoint.ts';
import {registerStream, streamsAmong} from './register-stream.ts';

const LISTED = 500;

/** Registers the streams of one page whose document is missing or belongs to another object. Returns the last name of the page. */
export async function registerPage(deps: Deps, parent: Run, after: string): Promise<string | undefined> {
  const {run} = parent;
  const listed = await deps.objects.list(streamPrefix(run), {start: after, limit: LISTED});
  const streams = streamsAmong(listed).filter(({object}) => object.name > after);
  await forEachConcurrently(streams, ({object, stream}) =>
    skipIfInvalid(deps.log, async () => {
      const known = await streamRecords.get(deps.store, run, stream);
      if (known?.object !== object.name || known.generation !== object.generation)
        return registerStream(deps, parent, object.name, stream);
      // An earlier delivery may have died after it wrote the document and before it counted the shards.
      const {status, epoch, total_shards} = known;
      if (status === 'pending' && epoch > 0 && total_shards === 0) await advanceStream(deps, run, stream);
    }),
  );
  return listed.length < LISTED ? undefined : listed.at(-1)?.name;
}

/**
 * Registers the streams in the bucket after `after`, up to `last`, that `known` lacks. `isAny`: true if such a stream has a document now.
 * `gone`: known streams without an object.
 */
export async function registerUnknown(
  deps: Deps,
  parent: Run,
  after: string,
  last: string | undefined,
  known: ReadonlySet<string>,
): Promise<{isAny: boolean; gone: ReadonlySet<string>}> {
  const {run} = parent;
  const isUnknown = (stream: string) =>
    stream > after && (last === undefined || stream <= last) && !known.has(stream);
  const end = last === undefined ? undefined : streamObject(run, last, true);
  const present = new Set<string>();
  for (let start = after === '' ? '' : streamObject(run, after); ; ) {
    const listed = await deps.objects.list(streamPrefix(run), {start, limit: LISTED});
    const streams = streamsAmong(listed);
    let isAny = false;
    for (const {stream} of streams) if (known.has(stream)) present.add(stream);
    await forEachConcurrently(
      streams.filter(({stream}) => isUnknown(stream)),
      async ({object, stream}) => {
        await registerStream(deps, parent, object.name, stream);
        isAny ||= (await streamRecords.get(deps.store, run, stream)) !== undefined;
      },
    );
    const name = listed.at(-1)?.name;
    const isLast = listed.length < LISTED || name === undefined || (end !== undefined && name > end);
    if (isAny || isLast) return {isAny, gone: new Set([...known].filter(stream => !present.has(stream)))};
    start = name;
  }
}

/** Position of a survey in the bucket: the last name, its run and stream, and the number of streams of that run so far. */
export type BucketCursor = {after: string; run: string; stream: string; streams: number};

/** Counts the streams of each run in one page of names. `runs`: runs that end in this page. An index with two objects counts once. */
export async function countPage(
  {objects}: Deps,
  cursor: BucketCursor,
): Promise<{runs: {run: string; streams: number}[]; next: BucketCursor | undefined}> {
  const limit = 5000;
  const listed = await objects.list('datasets/', {start: cursor.after, limit});
  const runs: {run: string; streams: number}[] = [];
  let {run, stream, streams} = cursor;
  for (const found of streamsAmong(listed)) {
    if (found.object.name <= cursor.after) continue;
    if (found.run !== run) {
      if (streams > 0) runs.push({run, streams});
      [run, stream, streams] = [found.run, '', 0];
    }
    if (found.stream !== stream) streams += 1;
    stream = found.stream;
  }
  const last = listed.at(-1)?.name;
  if (listed.length === limit && last !== undefined) return {runs, next: {after: last, run, stream, streams}};
  if (streams > 0) runs.push({run, streams});
  return {runs, next: undefined};
}
