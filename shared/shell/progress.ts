import {foldShards, type Shard} from '../core/checkpoint.ts';
import {outputPrefix, parseOutputObject, partialsPrefix, paths, shardListingStart} from '../core/names.ts';
import {type Stream, withProgress} from '../core/stream.ts';
import {iso} from '../core/time.ts';
import {Rejected} from '../errors.ts';
import type {ObjectInfo} from '../ports.ts';
import {parseValue, shardMetadata} from '../schemas.ts';
import type {Deps} from './deps.ts';
import {runRecords, streamRecords} from './records.ts';
import {tell} from './timeline.ts';

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
  const advanced = await countShards(deps, run, stream, objects);
  if (advanced?.status === 'completed') await clearPartials(deps, run, stream);
  return advanced;
}

function countShards(
  deps: Deps,
  run: string,
  stream: string,
  objects: ObjectInfo[],
): Promise<Stream | undefined> {
  return deps.store.transaction(async tx => {
    const [current, parent] = [await streamRecords.get(tx, run, stream), await runRecords.get(tx, run)];
    if (!current || !parent?.spec_hash) return current;
    const now = deps.now();
    const folded = foldListing(current, parent.spec_hash, objects);
    if (folded.kind === 'error') {
      if (current.status === 'failed') return current;
      const failed: Stream = {
        ...current,
        status: 'failed',
        lease: null,
        last_error: folded.reason,
        updated_at: iso(now),
      };
      streamRecords.set(tx, failed);
      tell(tx, {kind: 'stream', run, stream, text: `Stream ${run}/${stream} failed: ${folded.reason}`}, now);
      return failed;
    }
    const next = withProgress(current, folded.progress, now);
    if (next === current) return current;
    streamRecords.set(tx, next);
    for (const shard of folded.counted) {
      tx.set(paths.shard(run, stream, shard.shard), {...shard, stored_at: createdAt(objects, shard.object)});
      tell(
        tx,
        {kind: 'shard', run, stream, object: shard.object, text: storedText(`${run}/${stream}`, shard)},
        now,
      );
    }
    if (next.status === 'completed')
      tell(tx, {kind: 'stream', run, stream, text: `Stream ${run}/${stream} is complete`}, now);
    return next;
  });
}

/** A complete stream needs nobody's half-made shard any more. What this misses, the bucket's lifecycle rule takes. */
async function clearPartials(deps: Deps, run: string, stream: string): Promise<void> {
  for (const {name} of await deps.objects.list(partialsPrefix(run, stream))) await deps.objects.delete(name);
}

function foldListing(stream: Stream, spec_hash: string, objects: ObjectInfo[]) {
  try {
    const shards = readShards(stream, objects);
    return foldShards(stream, {spec_hash, stream_crc32c: stream.crc32c}, shards);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return {kind: 'error' as const, reason: error.message};
  }
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
