/** Counts stored shards in the document of their stream: a transaction reads the stream, decides, and writes. */
import {partialsPrefix, paths} from '../../domain/names.ts';
import {decideAdvance, decideTwin} from '../../domain/stream/advance.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import type {ObjectInfo} from '../../ports.ts';
import type {Deps} from '../deps.ts';
import {streamRecords} from '../documents/documents.ts';
import {storeAdvance} from '../documents/lease-documents.ts';
import {assertSpecHash, specHashOf} from '../documents/runs.ts';
import {readShards} from './stored-shards.ts';

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
