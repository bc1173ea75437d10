import {Rejected} from '../../contracts/errors.ts';
import {parseValue, shardMetadata} from '../../contracts/messages/schemas.ts';
import {outputPrefix, parseOutputObject} from '../../domain/names.ts';
import type {Shard} from '../../domain/records/shard.ts';
import type {Stream} from '../../domain/records/stream.ts';
import type {StoredShards} from '../../domain/stream/advance.ts';
import {largestEpoch} from '../../domain/stream/checkpoint.ts';
import {originAmong} from '../../domain/stream/registration.ts';
import type {ObjectInfo, Objects} from '../../ports/ports.ts';
import type {Log} from '../calls/log.ts';

type Named = Pick<Stream, 'run' | 'stream'>;

/** Reads the shards among the objects of a stream's folder. `invalid`: their metadata is invalid or names another shard. */
export function readShards(stream: Named, objects: readonly ObjectInfo[]): StoredShards {
  const stored: StoredShards = {shards: [], invalid: []};
  for (const object of objects)
    try {
      stored.shards.push(...readShard(stream, object));
    } catch (error) {
      if (!(error instanceof Rejected)) throw error;
      stored.invalid.push({object: object.name, by: 'content', reason: error.message});
    }
  return stored;
}

function readShard(stream: Named, {name, metadata, size_bytes, created_at}: ObjectInfo): Shard[] {
  const named = parseOutputObject(name);
  if (!named) return [];
  const {schema: _, run, stream: of, ...facts} = parseValue(shardMetadata, metadata, name);
  if (run !== stream.run || of !== stream.stream || facts.shard !== named.shard)
    throw new Rejected(`${name} says that it is shard ${facts.shard} of ${run}/${of}`);
  return [{...facts, object: name, size_bytes, stored_at: created_at}];
}

/**
 * Reads all shards of a stream. `shards`: empty if they do not belong together. `epoch`: the largest epoch of the valid shards, which the
 * next grant must exceed. `areAny`: true if the bucket has a shard.
 */
export async function storedShards(
  objects: Objects,
  run: string,
  stream: string,
): Promise<{shards: Shard[]; epoch: number; areAny: boolean}> {
  const {shards, invalid} = readShards({run, stream}, await objects.list(outputPrefix(run, stream)));
  const areAny = shards.length + invalid.length > 0;
  return {shards: invalid.length > 0 ? [] : shards, epoch: largestEpoch(shards), areAny};
}

/** Chooses the object of a stream if several have its index. Every registration of a new stream uses this rule. */
export async function originOf(
  {objects, log}: {objects: Objects; log: Log},
  run: string,
  stream: string,
  candidates: readonly ObjectInfo[],
): Promise<ObjectInfo | undefined> {
  const listing = candidates.length > 1 ? await objects.list(outputPrefix(run, stream)) : [];
  const {shards, invalid} = readShards({run, stream}, listing);
  for (const {reason} of invalid) log('ERROR', reason);
  return originAmong(candidates, shards[0]?.stream_crc32c);
}
