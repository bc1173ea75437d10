/** Compares the documents of streams with the bucket, and changes nothing. */

import {Rejected} from '../../contracts/errors.ts';
import {outputPrefix, parseDatasetObject, paths} from '../../domain/names.ts';
import type {Run} from '../../domain/run/run.ts';
import {
  foldShards,
  NOTHING_STORED,
  originOfShards,
  type Progress,
  type Shard,
} from '../../domain/stream/checkpoint.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import type {ObjectInfo} from '../../ports.ts';
import {forEachConcurrently} from '../state/concurrency.ts';
import type {Deps} from '../state/deps.ts';
import {runRecords, skipIfInvalid, streamRecords} from '../state/documents.ts';
import {type StreamObject, streamsOf} from './register-stream.ts';
import {createdAt, originOf, readShards} from './stored-shards.ts';

/** What a look needs: `gleaner rebuild --dry-run` has no more. */
export type Sources = Pick<Deps, 'store' | 'objects' | 'log'>;

/**
 * How a stream's documents compare with the bucket. `waits`: its run has no spec yet, so nothing can be said. `faulty`: its shards
 * do not belong together, which no document can mend. `gone`: its object is not in the bucket any more: see gone.ts.
 */
export type Finding = 'right' | 'missing' | 'broken' | 'different' | 'waits' | 'faulty' | 'gone';

export type StreamSurvey = {
  run: string;
  stream: string;
  object: string;
  finding: Finding;
  /** Shards in the bucket, also behind one that is missing, and those that the documents count. */
  stored_shards: number;
  known_shards: number;
  why: string | null;
};

/** Every run that has a stream in the bucket. */
export async function runsInBucket({objects}: Pick<Deps, 'objects'>): Promise<string[]> {
  const runs = new Set<string>();
  for (const {name} of await objects.list('datasets/')) {
    const dataset = parseDatasetObject(name);
    if (dataset.kind === 'stream') runs.add(dataset.run);
  }
  return [...runs].sort();
}

/** Compares the documents of each stream of a run with the bucket, and changes nothing. */
export async function surveyRun(deps: Sources, run: string): Promise<StreamSurvey[]> {
  const found: StreamSurvey[] = [];
  await forEachConcurrently(await streamObjects(deps, run), async object =>
    found.push((await compareStream(deps, run, object)).survey),
  );
  return found.sort((one, other) => (one.object < other.object ? -1 : 1));
}

/** The objects that the streams of a run are made of: one of each index. */
async function streamObjects(deps: Sources, run: string): Promise<ObjectInfo[]> {
  return originsAmong(deps, await streamsOf(deps.objects, run));
}

/** Of the objects with one index, the one that its stream is made of. */
export async function originsAmong(deps: Sources, found: readonly StreamObject[]): Promise<ObjectInfo[]> {
  const origins: ObjectInfo[] = [];
  const byStream = Map.groupBy(found, ({stream}) => stream);
  await forEachConcurrently([...byStream], async ([stream, objects]) => {
    const run = objects[0]?.run ?? '';
    const origin = await originOf(
      deps,
      run,
      stream,
      objects.map(({object}) => object),
    );
    if (origin) origins.push(origin);
  });
  return origins;
}

export type StoredShard = Shard & {stored_at: string | null};
export type Comparison = {
  survey: StreamSurvey;
  known: Stream | undefined;
  /** The content that counts: that of what is stored, or the one registered. */
  crc32c: string;
  /** The largest of the stored shards. */
  epoch: number;
  progress: Progress;
  shards: StoredShard[];
};

export async function compareStream(deps: Sources, run: string, object: ObjectInfo): Promise<Comparison> {
  const dataset = parseDatasetObject(object.name);
  if (dataset.kind !== 'stream') throw new Error(`${object.name} is no stream`);
  const {stream} = dataset;
  let known: Stream | undefined;
  let parent: Run | undefined;
  let broken: string | null = null;
  try {
    parent = await runRecords.get(deps.store, run);
    known = await streamRecords.get(deps.store, run, stream);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    broken = error.message;
  }
  // Listed after the documents were read: what they count is in the listing.
  const listing = await deps.objects.list(outputPrefix(run, stream));
  const about = {run, stream, object: object.name, known_shards: known?.total_shards ?? 0};
  let waiting: number[] = [];
  const read = await skipIfInvalid(deps.log, async () => readShards({run, stream}, listing));
  const spec_hash = parent?.spec_hash ?? read?.[0]?.spec_hash ?? '';
  const {epoch, crc32c} = originOfShards(object.crc32c, spec_hash, read ?? []);
  const answer = (finding: Finding, why: string | null, progress = NOTHING_STORED, shards: Shard[] = []) => ({
    survey: {...about, finding, stored_shards: progress.total_shards + waiting.length, why},
    known,
    crc32c: shards[0]?.stream_crc32c ?? known?.crc32c ?? object.crc32c,
    epoch,
    progress,
    shards: shards.map(shard => ({...shard, stored_at: createdAt(listing, shard.object)})),
  });
  const stored = read?.[0]?.stream_crc32c;
  const isForeign = known?.object !== object.name && known?.crc32c !== stored && object.crc32c === stored;
  if (known?.status === 'failed' && isForeign)
    return answer('broken', `it is of ${known.object}, and its shards are of ${object.name}`);
  // The document goes first: its content may have been replaced since the object was listed.
  const origin = {spec_hash, stream_crc32c: known?.crc32c ?? crc32c, epoch};
  const folded = read && foldShards(NOTHING_STORED, origin, read);
  if (!folded || folded.kind === 'error') {
    const why = folded?.reason ?? 'a shard says that it is another; the log says which';
    return known ? answer('faulty', why) : answer('missing', why);
  }
  const {progress, counted} = folded;
  waiting = folded.waiting;
  if (broken !== null) return answer('broken', broken, progress, counted);
  if (parent && !parent.spec_hash) return answer('waits', parent.reason, progress, counted);
  if (!parent || !known)
    return answer('missing', `${parent ? 'it' : 'its run'} has no document`, progress, counted);
  const told = gapOf(known, progress, waiting) ?? differenceOf(known, progress, epoch);
  const documents = await deps.store.count(paths.shards(run, stream));
  if (told) return answer('different', told, progress, counted);
  if (documents !== progress.total_shards)
    return answer('different', `${documents} shards have a document`, progress, counted);
  return answer('right', null, progress, counted);
}

/** `shard 2 is missing; 119 of 120 there`, where the document counts a shard that the bucket lacks. */
function gapOf({total_shards}: Stream, progress: Progress, waiting: readonly number[]): string | null {
  const {total_shards: counted, finished} = progress;
  if (finished || total_shards <= counted) return null;
  const all = Math.max(total_shards, ...waiting);
  return `shard ${counted + 1} is missing; ${counted + waiting.length} of ${all} there`;
}

function differenceOf(known: Stream, progress: Progress, epoch: number): string | null {
  if (known.blocked_reason !== null) return known.blocked_reason;
  if (known.epoch < epoch) return `its epoch is ${known.epoch}, and ${epoch} is the largest of its shards`;
  const fields = Object.keys(progress) as (keyof Progress)[];
  const field = fields.find(name => known[name] !== progress[name]);
  if (field) return `${field} is ${known[field]}, and ${progress[field]} in the bucket`;
  if ((known.status === 'completed') !== progress.finished)
    return `it is ${known.status}, and its last shard is ${progress.finished ? '' : 'not '}in the bucket`;
  return null;
}

/** Findings that a rebuild mends. A stream that waits needs a correct run.json; a faulty stream needs other shards. */
export const MENDED: readonly Finding[] = ['missing', 'broken', 'different'];

/** How many streams have each finding, and how many shards they have in the bucket. */
export type Tally = {streams: number; shards: number; findings: Partial<Record<Finding, number>>};

export const NOTHING_FOUND: Tally = {streams: 0, shards: 0, findings: {}};

export function addToTally({streams, shards, findings}: Tally, found: readonly StreamSurvey[]): Tally {
  const next = {...findings};
  for (const {finding} of found) next[finding] = (next[finding] ?? 0) + 1;
  const stored = found.reduce((sum, {stored_shards}) => sum + stored_shards, shards);
  return {streams: streams + found.length, shards: stored, findings: next};
}

/** `mended`: the streams had these findings, and are mended by now. */
export function describeTally(run: string, {streams, shards, findings}: Tally, mended = false): string {
  const kinds: Finding[] = [...MENDED, 'waits', 'faulty', 'gone'];
  const wrong = kinds.flatMap(kind => {
    const count = findings[kind] ?? 0;
    if (count === 0) return [];
    return mended && MENDED.includes(kind)
      ? `${counted(count, 'stream')} mended (was ${kind})`
      : `${count} ${kind}`;
  });
  const were = wrong.length > 0 ? wrong.join(', ') : 'all right';
  return `${run}: ${counted(streams, 'stream')} with ${counted(shards, 'shard')} in the bucket; ${were}`;
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
