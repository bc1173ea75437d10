/** Work state made again from the bucket: runs, streams, shards and checkpoints, while workers go on. */

import {Rejected} from '../../contracts/errors.ts';
import {datasetPrefix, outputPrefix, parseDatasetObject, paths} from '../../domain/names.ts';
import type {Run} from '../../domain/run/run.ts';
import {
  foldShards,
  NOTHING_STORED,
  originOfShards,
  type Progress,
  type Shard,
} from '../../domain/stream/checkpoint.ts';
import {type Stream, withRebuilt} from '../../domain/stream/stream.ts';
import type {ObjectInfo} from '../../ports.ts';
import {abreast} from '../state/concurrency.ts';
import type {Deps} from '../state/deps.ts';
import {runRecords, streamRecords, unlessBroken} from '../state/documents.ts';
import {tell} from '../state/event-log.ts';
import {shardRecords} from '../state/history-documents.ts';
import {createdAt, originOf, readShards} from '../streams/advance-checkpoint.ts';
import {ensureRun, registerStream, streamsOf, wake} from '../streams/register-stream.ts';
import {orphansLeft} from '../workers/orphans.ts';
import {deleteOrphans, readFleet} from '../workers/plan-fleet.ts';
import {isBlind, lookAtNodes} from '../workers/provider-snapshot.ts';
import {lookAtEveryStream} from './summarize-run.ts';

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

/** Shard documents of one transaction: Firestore takes 10 MiB, and each is well under 1 KiB. */
const SHARDS_AT_ONCE = 200;
const ATTEMPTS = 5;

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
  await abreast(await streamObjects(deps, run), async object =>
    found.push((await survey(deps, run, object)).survey),
  );
  return found.sort((one, other) => (one.object < other.object ? -1 : 1));
}

/** The objects that the streams of a run are made of. */
async function streamObjects(deps: Sources, run: string): Promise<ObjectInfo[]> {
  const byStream = new Map<string, ObjectInfo[]>();
  for (const {object, stream} of await streamsOf(deps, run))
    byStream.set(stream, [...(byStream.get(stream) ?? []), object]);
  const origins: ObjectInfo[] = [];
  await abreast([...byStream], async ([stream, objects]) => {
    const origin = await originOf(deps, run, stream, objects);
    if (origin) origins.push(origin);
  });
  return origins;
}

type StoredShard = Shard & {stored_at: string | null};
type Look = {
  survey: StreamSurvey;
  known: Stream | undefined;
  /** The content that counts: that of what is stored, or the one registered. */
  crc32c: string;
  /** The largest of the stored shards. */
  epoch: number;
  progress: Progress;
  shards: StoredShard[];
};

async function survey(deps: Sources, run: string, object: ObjectInfo): Promise<Look> {
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
  const read = await unlessBroken(deps, async () => readShards({run, stream}, listing));
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

/**
 * Makes the documents of one run again, or, without one, sends a message for each run that the bucket has. Answers what was done.
 * What is right is left alone, so it may be repeated, and run beside workers and other functions.
 */
export async function rebuild(deps: Deps, run: string | undefined): Promise<string> {
  if (run === undefined) {
    await removeOrphans(deps);
    const runs = await runsInBucket(deps);
    for (const each of runs) await deps.bus.publish('control', {action: 'rebuild', run: each});
    return `${runs.length} runs are made again, each by a message of its own: ${runs.slice(0, 20).join(', ')}`;
  }
  const objects = await streamObjects(deps, run);
  if (objects.length === 0)
    throw new Rejected(`there is nothing to rebuild: ${datasetPrefix(run)} holds no stream`);
  await dropBroken(deps, paths.run(run), () => runRecords.get(deps.store, run));
  await ensureRun(deps, run);
  const found: StreamSurvey[] = [];
  await abreast(objects, async object => found.push(await rebuildStream(deps, run, object)));
  const parent = await runRecords.get(deps.store, run);
  if (parent) await lookAtEveryStream(deps, parent, parent.cost_usd);
  await wake(deps);
  return `rebuilt ${describeSurvey(run, found, {mended: true})}`;
}

/**
 * Deletes the nodes of ours without a document, and throws until none of them is left: a worker of the lost database must not store a
 * shard while epochs are read from the bucket. The message comes again.
 */
async function removeOrphans(deps: Deps): Promise<void> {
  const look = await lookAtNodes(deps);
  if (await isBlind(deps, look.unreachable))
    throw new Error(
      `Failed to rebuild: ${look.unreachable.join(', ')} did not list its nodes; the message comes again`,
    );
  const fleet = await readFleet(deps);
  const left = orphansLeft(look, fleet.workers);
  if (left.length === 0) return;
  await deps.ticker.on();
  await deleteOrphans(deps, look, fleet);
  throw new Error(
    `Failed to rebuild: ${left.length} nodes without a document are being deleted, the first is ${left[0]}; the message comes again until they are gone`,
  );
}

/** Findings that a rebuild mends. A stream that waits needs a correct run.json; a faulty stream needs other shards. */
export const MENDED: readonly Finding[] = ['missing', 'broken', 'different'];

/** `mended`: the streams had these findings, and are mended by now. */
export function describeSurvey(
  run: string,
  found: readonly StreamSurvey[],
  {mended = false}: {mended?: boolean} = {},
): string {
  const shards = found.reduce((sum, {stored_shards}) => sum + stored_shards, 0);
  const kinds: Finding[] = [...MENDED, 'waits', 'faulty', 'gone'];
  const wrong = kinds.flatMap(kind => {
    const count = found.filter(({finding}) => finding === kind).length;
    if (count === 0) return [];
    return mended && MENDED.includes(kind)
      ? `${counted(count, 'stream')} mended (was ${kind})`
      : `${count} ${kind}`;
  });
  const were = wrong.length > 0 ? wrong.join(', ') : 'all right';
  return `${run}: ${counted(found.length, 'stream')} with ${counted(shards, 'shard')} in the bucket; ${were}`;
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** What was found before it was mended. */
async function rebuildStream(deps: Deps, run: string, object: ObjectInfo): Promise<StreamSurvey> {
  const {survey: first, known} = await survey(deps, run, object);
  if (first.finding === 'right') return first;
  const {stream} = first;
  await dropBroken(deps, paths.stream(run, stream), () => streamRecords.get(deps.store, run, stream));
  if (first.finding === 'broken' && known) await dropForeign(deps, known);
  if (first.finding === 'missing' || first.finding === 'broken')
    await registerStream(deps, object.name, run, stream);
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const look = await survey(deps, run, object);
    if (look.survey.finding !== 'different' || (await mend(deps, look))) return first;
  }
  throw new Error(
    `Failed to rebuild ${run}/${stream}: it changed ${ATTEMPTS} times meanwhile; the message comes again`,
  );
}

/** A document that cannot be read is worth less than none: what it said is made of the bucket. */
async function dropBroken(deps: Deps, path: string, read: () => Promise<unknown>): Promise<void> {
  try {
    await read();
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    deps.log('WARNING', `${error.message}; it is made again`);
    await deps.store.transaction(async tx => tx.delete(path));
  }
}

/** It is of another object than what is stored: registered anew, it is of the right one. */
async function dropForeign(deps: Deps, {run, stream, updated_at}: Stream): Promise<void> {
  await deps.store.transaction(async tx => {
    const current = await streamRecords.get(tx, run, stream);
    if (current?.updated_at === updated_at) tx.delete(paths.stream(run, stream));
  });
}

/** False when the stream's document has changed since it was compared. The shards' documents go first: they are counted last. */
async function mend(
  deps: Deps,
  {survey: {run, stream, why}, known, crc32c, epoch, progress, shards}: Look,
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
    streamRecords.set(tx, {...withRebuilt(current, {progress, epoch}, now), crc32c});
    for (const {path} of extra) tx.delete(path);
    const text = `Stream ${run}/${stream} is made again from the bucket: ${why}`;
    tell(tx, {kind: 'stream', run, stream, text}, now);
    return true;
  });
}
