import {Rejected} from '../../contracts/errors.ts';
import {parseValue, shardMetadata} from '../../contracts/schemas.ts';
import {
  type OutputObject,
  outputPrefix,
  parseOutputObject,
  partialsPrefix,
  paths,
  shardListingStart,
  shardObject,
} from '../../domain/names.ts';
import {isOpen} from '../../domain/run/run.ts';
import {foldShards, largestEpoch, type Shard} from '../../domain/stream/checkpoint.ts';
import {blockedBy, originAmong, type Stream, withProgress} from '../../domain/stream/stream.ts';
import {iso} from '../../domain/time.ts';
import type {ObjectInfo, Transaction} from '../../ports.ts';
import {addLateShards} from '../runs/late-shards.ts';
import {assertSpecHash, reopenRun, specHashOf} from '../runs/open-runs.ts';
import type {Deps} from '../state/deps.ts';
import {runRecords, streamRecords, unlessBroken} from '../state/documents.ts';
import {tell} from '../state/event-log.ts';
import {shardRecords} from '../state/history-documents.ts';
import {holderOf, takeWork} from '../state/lease-documents.ts';

/**
 * Moves a stream's checkpoint to what the bucket holds, and answers the stream as it then is. The listing is the truth:
 * which event led here, how often and in which order does not matter.
 */
export async function advanceStream(deps: Deps, run: string, stream: string): Promise<Stream | undefined> {
  const known = await streamRecords.get(deps.store, run, stream);
  if (!known || known.status === 'completed') return known;
  const objects = await deps.objects.list(outputPrefix(run, stream), {
    start: shardListingStart(run, stream, known.total_shards + 1),
  });
  if (objects.length === 0) return known;
  return (await countShards(deps, run, stream, objects)).advanced;
}

/** Uploads of one stream that may be under way at once, so that their events come in any order; see the extractor's pipeline. */
const MOST_AHEAD = 8;

/**
 * A shard was stored. Counts it if it is the next, and those behind it that waited for it: a listing, which costs more than ten
 * looks at one object, is made only when an earlier event must have been lost.
 */
export async function takeShard(deps: Deps, {run, stream, shard, format}: OutputObject): Promise<void> {
  for (let next = shard; ; next++) {
    const object = await deps.objects.head(shardObject(run, stream, next, format));
    if (!object) return;
    const {advanced, isNew} = await countShards(deps, run, stream, [object]);
    if (!advanced || advanced.status === 'completed' || advanced.status === 'failed') return;
    if (advanced.total_shards < next) {
      if (next - advanced.total_shards > MOST_AHEAD) await advanceStream(deps, run, stream);
      return;
    }
    if (!isNew && (await failOfTwin(deps, advanced, next, object.name))) return;
    next = advanced.total_shards;
  }
}

/** A shard that was counted before is the same object, or two of one number lie in the bucket. */
function failOfTwin(deps: Deps, {run, stream}: Stream, shard: number, object: string): Promise<boolean> {
  return deps.store.transaction(async tx => {
    const counted = await tx.get(paths.shard(run, stream, shard));
    const current = await streamRecords.get(tx, run, stream);
    if (!current || current.status === 'completed' || !counted || counted.object === object) return false;
    await fail(deps, tx, current, `${counted.object} and ${object} are both shard ${shard}`, deps.now());
    return true;
  });
}

/** Two documents for each: a commit must stay far below the 10 MiB that Firestore takes. */
const MOST_AT_ONCE = 200;

const NOTHING_NEW = {count: 0, left: 0, needsBeat: false};

/** Counts the shards that these objects are, some hundred in a transaction: between two of them, the checkpoint is as true. */
async function countShards(
  deps: Deps,
  run: string,
  stream: string,
  objects: ObjectInfo[],
): Promise<{advanced: Stream | undefined; isNew: boolean}> {
  const spec_hash = await specHashOf(deps, run);
  const shards = readOrRefuse(run, stream, objects);
  let [isNew, isBeating] = [false, false];
  for (;;) {
    const {counted, left, count, needsBeat} = await deps.store.transaction(async tx => {
      const current = await streamRecords.get(tx, run, stream);
      if (!current || current.status === 'completed' || !spec_hash) return {counted: current, ...NOTHING_NEW};
      const now = deps.now();
      const {epoch, crc32c, status, total_shards} = current;
      const origin = {spec_hash, stream_crc32c: crc32c, epoch};
      const all = shards instanceof Rejected ? errorOf(shards) : foldShards(current, origin, shards);
      if (all.kind === 'error') {
        await assertSpecHash(deps, tx, run, spec_hash);
        return {counted: await fail(deps, tx, current, all.reason, now), ...NOTHING_NEW};
      }
      // Shards that are there before the stream has a lease may be of an earlier run of this name.
      if (total_shards === 0 && status !== 'in_progress') await assertSpecHash(deps, tx, run, spec_hash);
      const some = foldShards(current, origin, all.counted.slice(0, MOST_AT_ONCE));
      if (some.kind === 'error') throw new Error(`${run}/${stream}: ${some.reason}`);
      const moved = withProgress(current, some.progress, now);
      if (moved === current) {
        const counted = all.ungranted ? await block(deps, tx, current, all.ungranted, now) : current;
        return {counted, ...NOTHING_NEW};
      }
      // It was parked, and its worker had all of it: the run may have ended over that.
      const isRevived = current.status === 'failed' && moved.status === 'completed';
      const ended = isRevived ? await runRecords.get(tx, run) : undefined;
      if (ended && !isOpen(ended) && !isBeating) return {counted: current, ...NOTHING_NEW, needsBeat: true};
      reopenRun(tx, ended, `stream ${stream} is complete after all`, now);
      streamRecords.set(tx, moved);
      for (const shard of some.counted) {
        const {object} = shard;
        const text = storedText(`${run}/${stream}`, shard);
        const stored_at = createdAt(objects, object);
        shardRecords.set(tx, paths.shard(run, stream, shard.shard), {...shard, stored_at});
        tell(tx, {kind: 'shard', run, stream, object, text}, now);
      }
      if (moved.status === 'completed')
        tell(tx, {kind: 'stream', run, stream, text: `Stream ${run}/${stream} is complete`}, now);
      const count = some.counted.length;
      const left = all.counted.length - count + (all.ungranted ? 1 : 0);
      return {counted: moved, count, left, needsBeat: false};
    });
    if (needsBeat) {
      await deps.ticker.on();
      isBeating = true;
      continue;
    }
    isNew ||= count > 0;
    if (left > 0) continue;
    // The run of a parked stream may have ended, and so may that of a stream whose worker lost its lease.
    if (isNew && counted?.lease === null) await addLateShards(deps, run);
    if (counted?.status === 'completed') {
      await clearPartials(deps, run, stream);
      // It may have been the last one of a run that is paused, for which nothing beats.
      if ((await runRecords.get(deps.store, run))?.status !== 'active') await deps.ticker.on();
    }
    return {advanced: counted, isNew};
  }
}

/** What lies in the bucket is not what the stream's shards must be: it is parked, and its worker is told. */
async function fail(
  deps: Deps,
  tx: Transaction,
  current: Stream,
  reason: string,
  now: number,
): Promise<Stream> {
  if (current.status === 'failed') return current;
  const failed: Stream = {
    ...current,
    status: 'failed',
    lease: null,
    last_error: reason.toWellFormed(),
    updated_at: iso(now),
  };
  return park(deps, tx, current, failed, `failed: ${reason}`, now);
}

/** A shard that no lease explains parks its stream until a `rebuild`. */
async function block(
  deps: Deps,
  tx: Transaction,
  current: Stream,
  shard: Shard,
  now: number,
): Promise<Stream> {
  const blocked = blockedBy(current, shard, now);
  if (blocked === current) return current;
  return park(deps, tx, current, blocked, `is blocked: ${blocked.blocked_reason}`, now);
}

async function park(
  deps: Deps,
  tx: Transaction,
  current: Stream,
  parked: Stream,
  text: string,
  now: number,
): Promise<Stream> {
  const {run, stream} = current;
  takeWork(tx, await holderOf(deps, tx, current));
  streamRecords.set(tx, parked);
  tell(tx, {kind: 'stream', run, stream, text: `Stream ${run}/${stream} ${text}`}, now);
  return parked;
}

/** A complete stream needs nobody's half-made shard any more. What this misses, the bucket's lifecycle rule takes. */
async function clearPartials(deps: Deps, run: string, stream: string): Promise<void> {
  for (const {name} of await deps.objects.list(partialsPrefix(run, stream))) await deps.objects.delete(name);
}

/**
 * The shards of a stream that lie in the bucket; none where they do not belong together. `epoch`: the largest of those that can be read
 * one by one, because a later grant is above it.
 */
export async function storedShards(
  {objects}: Pick<Deps, 'objects'>,
  run: string,
  stream: string,
): Promise<{shards: Shard[]; epoch: number; areAny: boolean}> {
  const listing = await objects.list(outputPrefix(run, stream));
  const shards = readOrRefuse(run, stream, listing);
  if (!(shards instanceof Rejected)) return {shards, epoch: largestEpoch(shards), areAny: shards.length > 0};
  const readable = listing.flatMap(object => {
    const shard = readOrRefuse(run, stream, [object]);
    return shard instanceof Rejected ? [] : shard;
  });
  return {shards: [], epoch: largestEpoch(readable), areAny: true};
}

function readOrRefuse(run: string, stream: string, objects: readonly ObjectInfo[]): Shard[] | Rejected {
  try {
    return readShards({run, stream}, objects);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return error;
  }
}

function errorOf({message}: Rejected) {
  return {kind: 'error' as const, reason: message};
}

/** Which of several objects with its index a stream is made of. Every way to a stream without a document asks this. */
export async function originOf(
  {objects, log}: Pick<Deps, 'objects' | 'log'>,
  run: string,
  stream: string,
  found: readonly ObjectInfo[],
): Promise<ObjectInfo | undefined> {
  const listing = found.length > 1 ? await objects.list(outputPrefix(run, stream)) : [];
  const shards = await unlessBroken({log}, async () => readShards({run, stream}, listing));
  return originAmong(found, shards?.[0]?.stream_crc32c);
}

type Named = Pick<Stream, 'run' | 'stream'>;

/** The shards among the objects of a stream's folder. Throws `Rejected` for a shard that says it is another. */
export function readShards(stream: Named, objects: readonly ObjectInfo[]): Shard[] {
  return objects.flatMap(object => readShard(stream, object));
}

function readShard(stream: Named, object: ObjectInfo): Shard[] {
  const named = parseOutputObject(object.name);
  if (!named) return [];
  const {schema: _, run, stream: of, ...facts} = parseValue(shardMetadata, object.metadata, object.name);
  if (run !== stream.run || of !== stream.stream || facts.shard !== named.shard)
    throw new Rejected(`${object.name} says that it is shard ${facts.shard} of ${run}/${of}`);
  return [{...facts, object: object.name, size_bytes: object.size_bytes}];
}

function storedText(of: string, shard: Shard): string {
  const rejected = shard.rejected > 0 ? `, ${shard.rejected} rejected` : '';
  return `Shard ${shard.shard} of ${of} stored: samples ${shard.first_sample}-${shard.last_sample}${rejected}`;
}

export function createdAt(objects: readonly ObjectInfo[], name: string): string | null {
  return objects.find(object => object.name === name)?.created_at ?? null;
}
