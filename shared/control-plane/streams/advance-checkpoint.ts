import {Rejected} from '../../contracts/errors.ts';
import {
  type OutputObject,
  outputPrefix,
  partialsPrefix,
  paths,
  shardListingStart,
  shardObject,
} from '../../domain/names.ts';
import {foldShards, type Shard} from '../../domain/stream/checkpoint.ts';
import {blockedBy, isUnfinished, type Stream, withProgress} from '../../domain/stream/stream.ts';
import {iso} from '../../domain/time.ts';
import type {ObjectInfo, Transaction} from '../../ports.ts';

import type {Deps} from '../deps.ts';
import {runRecords, streamRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {shardRecords} from '../documents/history-documents.ts';
import {clearWork, holderOf} from '../documents/lease-documents.ts';
import {requestTotals} from '../documents/request-totals.ts';
import {assertSpecHash, reopenRun, specHashOf} from '../documents/runs.ts';
import {createdAt, errorOf, readOrRefuse} from './stored-shards.ts';

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
  if (objects.length === 0) {
    // Shards that were counted under a lease after the end of the run.
    if (known.lease === null) await requestTotals(deps, run);
    return known;
  }
  return (await countShards(deps, run, stream, objects)).advanced;
}

/** Most uploads of one stream under way at once; see the extractor's pipeline. Their events come in any order. */
const MOST_AHEAD = 8;

/**
 * Counts a stored shard if it is the next shard of its stream, and then the stored shards behind it. A listing costs more than ten reads
 * of an object, so only a lost event causes a listing. Returns true if the stream has ended.
 */
export async function countShard(deps: Deps, {run, stream, shard, format}: OutputObject): Promise<boolean> {
  for (let next = shard; ; next++) {
    const object = await deps.objects.head(shardObject(run, stream, next, format));
    if (!object) return false;
    const {advanced, isNew} = await countShards(deps, run, stream, [object]);
    if (!advanced) return false;
    if (!isUnfinished(advanced)) return true;
    if (advanced.total_shards < next) {
      const isLost = next - advanced.total_shards > MOST_AHEAD;
      const found = isLost ? await advanceStream(deps, run, stream) : advanced;
      return found !== undefined && !isUnfinished(found);
    }
    if (!isNew && (await failOfTwin(deps, advanced, next, object.name))) return true;
    next = advanced.total_shards;
  }
}

/** Parks a stream with two objects for one shard number. Returns true if the stream is parked. */
function failOfTwin(deps: Deps, {run, stream}: Stream, shard: number, object: string): Promise<boolean> {
  return deps.store.transaction(async tx => {
    const counted = await tx.get(paths.shard(run, stream, shard));
    const current = await streamRecords.get(tx, run, stream);
    if (!current || current.status === 'completed' || !counted || counted.object === object) return false;
    await fail(deps, tx, current, `${counted.object} and ${object} are both shard ${shard}`, deps.now());
    return true;
  });
}

/** Shards of one transaction, with two documents each: a commit must stay far below Firestore's 10 MiB. */
const MOST_AT_ONCE = 200;

const NOTHING_NEW = {count: 0, left: 0};

/** Counts the shards among the objects, up to `MOST_AT_ONCE` in a transaction. The checkpoint is correct after each transaction. */
async function countShards(
  deps: Deps,
  run: string,
  stream: string,
  objects: ObjectInfo[],
): Promise<{advanced: Stream | undefined; isNew: boolean}> {
  const spec_hash = await specHashOf(deps, run);
  const shards = readOrRefuse(run, stream, objects);
  let isNew = false;
  for (;;) {
    const {counted, left, count} = await deps.store.transaction(async tx => {
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
      // Shards from before the first lease may belong to an earlier run of this name.
      if (total_shards === 0 && status !== 'in_progress') await assertSpecHash(deps, tx, run, spec_hash);
      const some = foldShards(current, origin, all.counted.slice(0, MOST_AT_ONCE));
      if (some.kind === 'error') throw new Error(`${run}/${stream}: ${some.reason}`);
      const moved = withProgress(current, some.progress, now);
      if (moved === current) {
        const counted = all.ungranted ? await block(deps, tx, current, all.ungranted, now) : current;
        return {counted, ...NOTHING_NEW};
      }
      // A parked stream is complete after all: its run may have ended.
      const isRevived = current.status === 'failed' && moved.status === 'completed';
      const ended = isRevived ? await runRecords.get(tx, run) : undefined;
      reopenRun(tx, ended, `stream ${stream} is complete after all`, now);
      streamRecords.set(tx, moved);
      for (const shard of some.counted) {
        const {object} = shard;
        const text = storedText(`${run}/${stream}`, shard);
        const stored_at = createdAt(objects, object);
        shardRecords.set(tx, paths.shard(run, stream, shard.shard), {...shard, stored_at});
        recordEvent(tx, {kind: 'shard', run, stream, object, text}, now);
      }
      if (moved.status === 'completed')
        recordEvent(tx, {kind: 'stream', run, stream, text: `Stream ${run}/${stream} is complete`}, now);
      const count = some.counted.length;
      const left = all.counted.length - count + (all.ungranted ? 1 : 0);
      return {counted: moved, count, left};
    });
    isNew ||= count > 0;
    if (left > 0) continue;
    // The run of a stream without a lease may have ended. An earlier delivery may have counted the shard and failed here.
    if (counted?.lease === null) await requestTotals(deps, run);
    if (counted?.status === 'completed') await clearPartials(deps, run, stream);
    return {advanced: counted, isNew};
  }
}

/** Parks a stream whose shards in the bucket are inconsistent, and clears its worker. */
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

/** Parks a stream until a `rebuild`: no lease explains a shard of it. */
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
  clearWork(tx, await holderOf(deps.log, tx, current));
  streamRecords.set(tx, parked);
  recordEvent(tx, {kind: 'stream', run, stream, text: `Stream ${run}/${stream} ${text}`}, now);
  return parked;
}

/** Deletes the partial shards of a complete stream. The bucket's lifecycle rule deletes missed objects. */
async function clearPartials(deps: Deps, run: string, stream: string): Promise<void> {
  for (const {name} of await deps.objects.list(partialsPrefix(run, stream))) await deps.objects.delete(name);
}

function storedText(of: string, shard: Shard): string {
  const rejected = shard.rejected > 0 ? `, ${shard.rejected} rejected` : '';
  return `Shard ${shard.shard} of ${of} stored: samples ${shard.first_sample}-${shard.last_sample}${rejected}`;
}
