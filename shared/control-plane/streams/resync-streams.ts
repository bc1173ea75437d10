/** Streams whose events never came, or whose documents are gone: the bucket is gone through for them. */
import {paths, streamObject, streamPrefix} from '../../domain/names.ts';
import type {Run} from '../../domain/run/run.ts';
import {isUnfinished} from '../../domain/stream/stream.ts';
import {iso} from '../../domain/time.ts';
import {abreast} from '../state/concurrency.ts';
import type {Deps} from '../state/deps.ts';
import {streamRecords, UNFINISHED, unlessBroken} from '../state/documents.ts';
import {listingRecords} from '../state/history-documents.ts';
import {advanceStream} from './advance-checkpoint.ts';
import {
  ensureRun,
  registerStream,
  type StreamObject,
  see,
  streamsAmong,
  versionOf,
} from './register-stream.ts';

/** How many objects under `datasets/` one look goes through: a larger bucket takes several. */
const MOST_LISTED = 5000;
/** Streams that are taken between two looks at the clock. */
const SLICE = 100;

/**
 * Takes the streams whose events never came, some thousand objects at each look until its time is over; the next one goes on. What
 * this process has seen registered or refused it does not read again, unless its run shows that a document is gone since: an
 * object's name and generation stand for one content for ever, and a Store may be lost, or edited, under a process that lives on.
 */
export async function takeMissedStreams(deps: Deps, until_ms: number): Promise<void> {
  const start = await nextToList(deps);
  const listed = await deps.objects.list('datasets/', {start, limit: MOST_LISTED});
  const failures: unknown[] = [];
  const found = streamsAmong(listed);
  const runs = new Map<string, Run>();
  await abreast([...new Set(found.map(({run}) => run))], run =>
    unlessBroken(deps, async () => {
      const parent = await seeRun(deps, run);
      if (parent?.spec) runs.set(run, parent);
    }).catch(error => failures.push(error)),
  );
  const take = (streams: StreamObject[]) =>
    abreast(streams, each => takeMissed(deps, each, runs.get(each.run)).catch(error => failures.push(error)));
  const seen = (run: string) => deps.taken.get(run)?.streams.size ?? 0;
  const before = new Map([...runs.keys()].map(run => [run, seen(run)]));
  let taken = 0;
  do {
    await take(found.slice(taken, taken + SLICE));
    taken += SLICE;
  } while (taken < found.length && deps.now() < until_ms);
  // Behind documents that are new to this process, others may be gone that it has seen: now it has seen all.
  const grown = [...before].filter(([run, size]) => size > 0 && seen(run) > size);
  await abreast(grown, ([run]) =>
    unlessBroken(deps, async () => {
      await seeRun(deps, run);
      if (!deps.taken.has(run)) await take(found.filter(each => each.run === run));
    }).catch(error => failures.push(error)),
  );
  const end = listed.length < MOST_LISTED ? '' : (listed.at(-1)?.name ?? '');
  const next = found[taken]?.object.name ?? end;
  if (next !== start)
    await deps.store.transaction(async tx =>
      listingRecords.set(tx, paths.progressOfLooks(), {next, updated_at: iso(deps.now())}),
    );
  if (failures.length > 0) throw failures[0];
}

/** The name with which the next look goes on; empty when the last one came to the end. */
export async function nextToList(deps: Deps): Promise<string> {
  const progress = await deps.store.get(paths.progressOfLooks());
  return typeof progress?.next === 'string' ? progress.next : '';
}

/**
 * The run, made again if its document is gone or had no spec. What was seen of it is forgotten where its documents are fewer than
 * were seen, or are not all done though it has ended: they are read again.
 */
async function seeRun(deps: Deps, run: string): Promise<Run | undefined> {
  const parent = await ensureRun(deps, run);
  const seen = deps.taken.get(run);
  if (!parent || !seen) return parent;
  const streams = paths.streams(run);
  const isAnyGone = (await deps.store.count(streams)) < seen.streams.size;
  const isAnyLeft = hasEnded(parent) && (await deps.store.count(streams, [UNFINISHED])) > 0;
  if (isAnyGone || isAnyLeft) deps.taken.delete(run);
  return parent;
}

/** Without a spec, the run waits for a good `run.json`, and its streams with it. */
async function takeMissed(
  deps: Deps,
  {object, run, stream}: StreamObject,
  parent: Run | undefined,
): Promise<void> {
  if (!parent || deps.taken.get(run)?.objects.has(versionOf(object))) return;
  await unlessBroken(deps, async () => {
    const known = await streamRecords.get(deps.store, run, stream);
    const isMissed = known?.object !== object.name || known.generation !== object.generation;
    // A look that died between the end of a run and its last check left a late stream behind: taking it again opens the run.
    if (isMissed || (isUnfinished(known) && hasEnded(parent)))
      await registerStream(deps, object.name, run, stream);
    else {
      // The function that made its document again may have died before it counted the shards.
      const {status, epoch, total_shards} = known;
      if (status === 'pending' && epoch > 0 && total_shards === 0) await advanceStream(deps, run, stream);
      see(deps, run, object, stream);
    }
  });
}

/** Objects that are listed at once: two for each stream of a page. */
const LISTED = 1000;

/**
 * Registers the streams behind `after`, up to `last`, that lie in the bucket and are not known. `isAny` as soon as one of them has a
 * document; `gone`: known streams whose object is not in the bucket any more.
 */
export async function takeUnknown(
  deps: Deps,
  run: string,
  after: string,
  last: string | undefined,
  known: ReadonlySet<string>,
): Promise<{isAny: boolean; gone: ReadonlySet<string>}> {
  const isUnknown = (stream: string) =>
    stream > after && (last === undefined || stream <= last) && !known.has(stream);
  const end = last === undefined ? undefined : streamObject(run, last, true);
  const present = new Set<string>();
  for (let start = after === '' ? '' : streamObject(run, after); ; ) {
    const listed = await deps.objects.list(streamPrefix(run), {start, limit: LISTED});
    const streams = streamsAmong(listed);
    let isAny = false;
    for (const {stream} of streams) if (known.has(stream)) present.add(stream);
    await abreast(
      streams.filter(({stream}) => isUnknown(stream)),
      async ({object, stream}) => {
        await registerStream(deps, object.name, run, stream);
        isAny ||= (await deps.store.get(paths.stream(run, stream))) !== undefined;
      },
    );
    const name = listed.at(-1)?.name;
    const isLast = listed.length < LISTED || name === undefined || (end !== undefined && name > end);
    if (isAny || isLast) return {isAny, gone: new Set([...known].filter(stream => !present.has(stream)))};
    start = name;
  }
}

function hasEnded({status}: Run): boolean {
  return status === 'completed' || status === 'failed';
}
