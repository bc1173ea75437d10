import {type OutputObject, outputPrefix, shardListingStart, shardObject} from '../../domain/names.ts';
import {isUnfinished, type Stream} from '../../domain/stream/stream.ts';
import type {Deps} from '../deps.ts';
import {streamRecords} from '../documents/documents.ts';
import {countShards, parkTwin} from './count-shards.ts';

/** Most uploads of one stream under way at once; see the extractor's pipeline. Their events come in any order. */
const MOST_AHEAD = 8;

/**
 * Counts a stored shard if it is the next shard of its stream, and then the stored shards behind it. A listing costs more than ten reads
 * of an object, so only a lost event causes a listing. Returns true if the stream has ended.
 */
export async function advanceByShard(
  deps: Deps,
  {run, stream, shard, format}: OutputObject,
): Promise<boolean> {
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
