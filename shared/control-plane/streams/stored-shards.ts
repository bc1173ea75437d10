import {Rejected} from '../../contracts/errors.ts';
import {parseValue, shardMetadata} from '../../contracts/schemas.ts';
import {outputPrefix, parseOutputObject} from '../../domain/names.ts';
import type {StoredShards} from '../../domain/stream/advance.ts';
import {largestEpoch, type Shard} from '../../domain/stream/checkpoint.ts';
import {originAmong} from '../../domain/stream/registration.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import type {ObjectInfo, Objects} from '../../ports.ts';
import type {Log} from '../log.ts';

type Named = Pick<Stream, 'run' | 'stream'>;

/** Reads the shards among the objects of a stream's folder. An error: the metadata of a shard is invalid, or names another shard. */
export function readShards(stream: Named, objects: readonly ObjectInfo[]): StoredShards {
  try {
    return {kind: 'ok', shards: objects.flatMap(object => readShard(stream, object))};
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return {kind: 'error', reason: error.message};
  }
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
 * Reads all shards of a stream. `shards`: empty if they do not belong together. `epoch`: the largest epoch of the valid shards, because
 * the next grant must exceed it. `areAny`: true if the bucket has a shard.
 */
export async function storedShards(
  objects: Objects,
  run: string,
  stream: string,
): Promise<{shards: Shard[]; epoch: number; areAny: boolean}> {
  const listing = await objects.list(outputPrefix(run, stream));
  const read = (among: readonly ObjectInfo[]) => shardsOf(readShards({run, stream}, among));
  const shards = read(listing);
  const valid = shards ?? listing.flatMap(object => read([object]) ?? []);
  return {shards: shards ?? [], epoch: largestEpoch(valid), areAny: shards?.length !== 0};
}

function shardsOf(stored: StoredShards): Shard[] | undefined {
  return stored.kind === 'ok' ? stored.shards : undefined;
}

/** Returns the object of a stream if several objects have its index. Every registration of a new stream uses this rule. */
export async function originOf(
  {objects, log}: {objects: Objects; log: Log},
  run: string,
  stream: string,
  candidates: readonly ObjectInfo[],
): Promise<ObjectInfo | undefined> {
  const listing = candidates.length > 1 ? await objects.list(outputPrefix(run, stream)) : [];
  const stored = readShards({run, stream}, listing);
  if (stored.kind === 'error') log('ERROR', stored.reason);
  return originAmong(candidates, shardsOf(stored)?.[0]?.stream_crc32c);
}
