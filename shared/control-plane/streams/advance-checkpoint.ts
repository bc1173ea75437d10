/** Moves the checkpoint of a stream: counts its stored shards, whose events may be lost or come in any order. */
import {
  type OutputObject,
  outputPrefix,
  partialsPrefix,
  paths,
  shardListingStart,
  shardObject,
} from '../../domain/names.ts';
import {decideAdvance, decideTwin} from '../../domain/stream/advance.ts';
import {isUnfinished, type Stream} from '../../domain/stream/stream.ts';
import type {ObjectInfo} from '../../ports.ts';
import type {Deps} from '../deps.ts';
import {streamRecords} from '../documents/documents.ts';
import {storeAdvance} from '../documents/lease-documents.ts';
import {assertSpecHash, specHashOf} from '../documents/runs.ts';
import {readShards} from './stored-shards.ts';

/** Most uploads of one stream under way at once; see the extractor's pipeline. Their events come in any order. */
const MOST_AHEAD = 8;

/**
 * Counts a stored shard if it is the next shard of its stream, and then the stored shards behind it. A listing costs more than ten reads
 * of an object, so only a lost event causes a listing. Returns true if the stream has ended.
 */
export async function advanceByShard(deps: Deps, output: OutputObject): Promise<boolean> {
  const {run, stream, shard, format} = output;
  for (let next = shard; ; ) {
    const object = await deps.objects.head(shardObject(run, stream, next, format));
    if (!object) return false;
    const {current, isNew} = await countShards(deps, run, stream, [object]);
    if (!current) return false;
    if (!isUnfinished(current)) return true;
    const {total_shards} = current;
    if (total_shards < next) {
      const isLost = next - total_shards > MOST_AHEAD;
      const advanced = isLost ? await advanceStream(deps, run, stream) : current;
      return advanced !== undefined && !isUnfinished(advanced);
    }
    if (!isNew && (await parkTwin(deps, current, next, object.name))) return true;
    next = total_shards + 1;
  }
}

/**
 * Advances the checkpoint of a stream to the shards in the bucket, and returns the stream. The listing is the truth: the number and the
 * order of events do not matter.
 */
export async function advanceStream(deps: Deps, run: string, stream: string): Promise<Stream | undefined> {
  const known = await streamRecords.get(deps.store, run, stream);
  if (!known || known.status === 'completed') return known;
  const objects = await deps.objects.list(outputPrefix(run, stream), {
    start: shardListingStart(run, stream, known.total_shards + 1),
  });
  return objects.length > 0 ? (await countShards(deps, run, stream, objects)).current : known;
}

/** Counts the shards among the objects, in as many transactions as they need. The checkpoint is correct after each transaction. */
export async function countShards(
  deps: Deps,
  run: string,
  stream: string,
  objects: readonly ObjectInfo[],
): Promise<{current: Stream | undefined; isNew: boolean}> {
  const spec_hash = await specHashOf(deps, run);
  const stored = readShards({run, stream}, objects);
  let current: Stream | undefined;
  let isNew = false;
  for (let hasMore = true; hasMore; ) {
    const advance = await deps.store.transaction(async tx => {
      const before = await streamRecords.get(tx, run, stream);
      if (!before || before.status === 'completed' || !spec_hash) return {stream: before, hasMore: false};
      const now = deps.now();
      const decided = decideAdvance(before, spec_hash, stored, now);
      if (decided.needsSpecCheck) await assertSpecHash(deps, tx, run, spec_hash);
      await storeAdvance(deps.log, tx, before, decided, now);
      return decided;
    });
    current = advance.stream;
    isNew ||= 'counted' in advance && advance.counted.length > 0;
    hasMore = advance.hasMore;
  }
  if (current?.status !== 'completed') return {current, isNew};
  // The bucket's lifecycle rule deletes partial shards that this misses.
  for (const {name} of await deps.objects.list(partialsPrefix(run, stream))) await deps.objects.delete(name);
  return {current, isNew};
}

/** Fails a stream if another object has the number of a counted shard. Returns true if the stream has failed. */
export function parkTwin(deps: Deps, {run, stream}: Stream, shard: number, object: string): Promise<boolean> {
  return deps.store.transaction(async tx => {
    const counted = await tx.get(paths.shard(run, stream, shard));
    const current = await streamRecords.get(tx, run, stream);
    if (!current || current.status === 'completed' || !counted || counted.object === object) return false;
    const now = deps.now();
    const failed = decideTwin(current, shard, [String(counted.object), object], now);
    await storeAdvance(deps.log, tx, current, failed, now);
    return true;
  });
}
