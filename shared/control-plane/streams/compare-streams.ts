import {NotUnderstood} from '../../contracts/errors.ts';
import {outputPrefix, parseDatasetObject, paths} from '../../domain/names.ts';
import type {Run} from '../../domain/records/run.ts';
import {NOTHING_STORED, type Progress, type Shard} from '../../domain/records/shard.ts';
import type {Stream} from '../../domain/records/stream.ts';
import {foldShards, originOfShards} from '../../domain/stream/checkpoint.ts';
import type {ObjectInfo} from '../../ports/ports.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Deps} from '../deps.ts';
import {runRecords, streamRecords} from '../documents/documents.ts';
import {formatOf} from '../documents/runs.ts';
import {withCheckedFinal} from './final-shard.ts';
import type {StreamObject} from './register-stream.ts';
import {originOf, readShards} from './stored-shards.ts';

/** Ports that a comparison needs, the only ones that `gleaner rebuild --dry-run` has. */
export type Sources = Pick<Deps, 'store' | 'objects' | 'log'>;

/**
 * Result of comparing the documents of a stream with the bucket.
 * - `broken`: the document belongs to another object.
 * - `left-alone`: this release does not understand the document of the stream or of its run.
 * - `waits`: the run has no spec yet, so no comparison is possible.
 * - `faulty`: the shards do not belong together, which a rebuild cannot fix.
 * - `gone`: the stream object is no longer in the bucket: see cli/run/survey.ts.
 */
export type Finding =
  | 'right'
  | 'missing'
  | 'broken'
  | 'different'
  | 'left-alone'
  | 'waits'
  | 'faulty'
  | 'gone';

export type StreamSurvey = {
  run: string;
  stream: string;
  object: string;
  finding: Finding;
  /** `stored_shards`: shards in the bucket, including those after a gap. `known_shards`: shards that the stream's document counts. */
  stored_shards: number;
  known_shards: number;
  why: string | null;
};

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

/** Most shards after a gap that a rebuild keeps, because a document has a size limit. */
const MOST_KEPT = 5000;

export type Comparison = {
  survey: StreamSurvey;
  known: Stream | undefined;
  /** Checksum of the content from which the stored shards were made; without shards, of the registered content. */
  crc32c: string;
  epoch: number;
  progress: Progress;
  shards: Shard[];
  /** Shards after a gap. */
  kept_shards: number[];
};

export async function compareStream(deps: Sources, run: string, object: ObjectInfo): Promise<Comparison> {
  const dataset = parseDatasetObject(object.name);
  if (dataset.kind !== 'stream') throw new Error(`${object.name} is not a stream`);
  const {stream} = dataset;
  let known: Stream | undefined;
  let parent: Run | undefined;
  let alone: string | null = null;
  try {
    parent = await runRecords.get(deps.store, run);
    known = await streamRecords.get(deps.store, run, stream);
  } catch (error) {
    if (!(error instanceof NotUnderstood)) throw error;
    alone = error.message;
  }
  // Listed after the documents were read, so that the listing has every counted shard.
  const listing = await deps.objects.list(outputPrefix(run, stream));
  const about = {run, stream, object: object.name, known_shards: known?.total_shards ?? 0};
  let waiting: number[] = [];
  const stored = readShards({run, stream}, listing);
  const {shards: readable, invalid} = await withCheckedFinal(deps.objects, stored, listing);
  const spec_hash = parent?.spec_hash ?? readable[0]?.spec_hash ?? '';
  const {epoch, crc32c} = originOfShards(object.crc32c, spec_hash, readable);
  const answer = (finding: Finding, why: string | null, progress = NOTHING_STORED, shards: Shard[] = []) => ({
    survey: {...about, finding, stored_shards: progress.total_shards + waiting.length, why},
    known,
    crc32c: shards[0]?.stream_crc32c ?? known?.crc32c ?? object.crc32c,
    epoch,
    progress,
    shards,
    kept_shards: waiting.slice(0, MOST_KEPT),
  });
  const stored_crc32c = readable[0]?.stream_crc32c;
  const isOfShards = object.crc32c === stored_crc32c && known?.crc32c !== stored_crc32c;
  if (known?.status === 'failed' && known.object !== object.name && isOfShards)
    return answer('broken', `it is of ${known.object}, and its shards are of ${object.name}`);
  // The document's checksum comes first, because the object may have been replaced since the listing.
  const format = formatOf(parent?.spec);
  const origin = {spec_hash, format, stream_crc32c: known?.crc32c ?? crc32c};
  const {progress, counted, ...folded} = foldShards(NOTHING_STORED, origin, readable);
  const [unfit] = [...invalid, ...folded.unfit];
  if (unfit) return answer(known ? 'faulty' : 'missing', unfit.reason);
  waiting = folded.waiting;
  if (alone !== null) return answer('left-alone', alone, progress, counted);
  if (parent && !parent.spec_hash) return answer('waits', parent.reason, progress, counted);
  if (!parent || !known)
    return answer('missing', `${parent ? 'it' : 'its run'} has no document`, progress, counted);
  const difference = gapOf(known, progress, waiting) ?? differenceOf(known, progress, epoch);
  const documents = await deps.store.count(paths.shards(run, stream));
  if (difference) return answer('different', difference, progress, counted);
  if (documents !== progress.total_shards)
    return answer('different', `${documents} shards have a document`, progress, counted);
  return answer('right', null, progress, counted);
}

/** Text such as `shard 2 is missing; 119 of 120 there`, if the document counts a shard that the bucket lacks. */
function gapOf({total_shards}: Stream, progress: Progress, waiting: readonly number[]): string | null {
  const {total_shards: counted, finished} = progress;
  if (finished || total_shards <= counted) return null;
  const all = Math.max(total_shards, ...waiting);
  return `shard ${counted + 1} is missing; ${counted + waiting.length} of ${all} there`;
}

function differenceOf(known: Stream, progress: Progress, epoch: number): string | null {
  if (known.epoch < epoch) return `its epoch is ${known.epoch}, and ${epoch} is the largest of its shards`;
  const fields = Object.keys(progress) as (keyof Progress)[];
  const field = fields.find(name => known[name] !== progress[name]);
  if (field) return `${field} is ${known[field]}, and ${progress[field]} in the bucket`;
  if ((known.status === 'completed') !== progress.finished)
    return `it is ${known.status}, and its last shard is ${progress.finished ? '' : 'not '}in the bucket`;
  return null;
}

/** Findings that a rebuild fixes. A stream that waits needs a correct run.json; a faulty stream needs other shards. */
export const MENDED: readonly Finding[] = ['missing', 'broken', 'different'];

export type Tally = {streams: number; shards: number; findings: Partial<Record<Finding, number>>};

export const NOTHING_FOUND: Tally = {streams: 0, shards: 0, findings: {}};

export function addToTally({streams, shards, findings}: Tally, found: readonly StreamSurvey[]): Tally {
  const next = {...findings};
  for (const {finding} of found) next[finding] = (next[finding] ?? 0) + 1;
  const stored = found.reduce((sum, {stored_shards}) => sum + stored_shards, shards);
  return {streams: streams + found.length, shards: stored, findings: next};
}

export function describeTally(run: string, {streams, shards, findings}: Tally, mended = false): string {
  const kinds: Finding[] = [...MENDED, 'left-alone', 'waits', 'faulty', 'gone'];
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
