/** Reads the shards of a stream from the metadata of their objects. */
import {Rejected} from '../../contracts/errors.ts';
import {parseValue, shardMetadata} from '../../contracts/schemas.ts';
import {outputPrefix, parseOutputObject} from '../../domain/names.ts';
import {largestEpoch, type Shard} from '../../domain/stream/checkpoint.ts';
import {originAmong, type Stream} from '../../domain/stream/stream.ts';
import type {ObjectInfo, Objects} from '../../ports.ts';
import {skipIfInvalid} from '../documents/documents.ts';
import type {Log} from '../log.ts';

/**
 * Reads the shards of a stream. `shards`: empty if they do not belong together. `epoch`: the largest epoch of the valid shards, because
 * the next grant must exceed it. `areAny`: true if the bucket has a shard.
 */
export async function storedShards(
  objects: Objects,
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

export function readOrRefuse(
  run: string,
  stream: string,
  objects: readonly ObjectInfo[],
): Shard[] | Rejected {
  try {
    return readShards({run, stream}, objects);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return error;
  }
}

export function errorOf({message}: Rejected) {
  return {kind: 'error' as const, reason: message};
}

/** Returns the object of a stream if several objects have its index. Every registration of a new stream uses this rule. */
export async function originOf(
  {objects, log}: {objects: Objects; log: Log},
  run: string,
  stream: string,
  found: readonly ObjectInfo[],
): Promise<ObjectInfo | undefined> {
  const listing = found.length > 1 ? await objects.list(outputPrefix(run, stream)) : [];
  const shards = await skipIfInvalid(log, async () => readShards({run, stream}, listing));
  return originAmong(found, shards?.[0]?.stream_crc32c);
}

type Named = Pick<Stream, 'run' | 'stream'>;

/** Reads the shards among the objects of a stream's folder. Throws `Rejected` if the metadata of a shard names another shard. */
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

export function createdAt(objects: readonly ObjectInfo[], name: string): string | null {
  return objects.find(object => object.name === name)?.created_at ?? null;
}
