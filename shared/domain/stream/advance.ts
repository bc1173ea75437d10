import {withTraffic} from '../billing/network.ts';
import type {Shard} from '../records/shard.ts';
import {failedFor, type Stream, withProgress} from '../records/stream.ts';
import type {TimelineEvent} from '../timeline.ts';
import {foldShards, type Unfit} from './checkpoint.ts';
import {leaseProblem} from './proof.ts';

/** Shards of a stream, and objects in the place of shards whose metadata or bytes are invalid. */
export type StoredShards = {shards: Shard[]; invalid: Unfit[]};

/** Properties that all shards of a run share. */
export type FrozenOutput = {spec_hash: string; format: string};

export type Advance = {
  stream: Stream;
  countedShards: readonly Shard[];
  /** Objects to move aside, so that valid shards can take their names. */
  unfit: readonly Unfit[];
  /** Shards after a gap. */
  waiting: readonly number[];
  events: TimelineEvent[];
  /** Further shards are left for the next transaction. */
  hasMore: boolean;
  /** The run may have been restarted under its name: check that its document still has the spec that the caller knows. */
  needsSpecCheck: boolean;
};

/** Shards of one transaction, with two documents each, so that a commit stays far below Firestore's 10 MiB. */
const MOST_AT_ONCE = 200;

/**
 * Advances the checkpoint to the stored shards. Shards of other content fail a stream that was never granted, because an earlier run of the
 * same name stored them. After a grant they are set aside, and the stream continues.
 */
export function decideAdvance(
  stream: Stream,
  frozen: FrozenOutput,
  stored: StoredShards,
  now: number,
): Advance {
  const {crc32c, status, total_shards, lease_key} = stream;
  const origin = {
    ...frozen,
    stream_crc32c: crc32c,
    leaseProblem: (shard: Shard) => leaseProblem(stream, shard),
  };
  const all = foldShards(stream, origin, stored.shards);
  const {waiting} = all;
  const unfit = [...stored.invalid, ...all.unfit];
  // Shards from before the first lease, or of another spec, may belong to another run of the same name.
  const isForeign = unfit.some(({by}) => by === 'content');
  const needsSpecCheck = isForeign || (total_shards === 0 && status !== 'in_progress');
  const isEarlier = lease_key === null && status !== 'completed';
  const earlier = isEarlier ? unfit.find(({by}) => by === 'content') : undefined;
  if (earlier) return {...failed(stream, earlier.reason, now), needsSpecCheck};
  const fold = foldShards(stream, origin, all.counted.slice(0, MOST_AT_ONCE));
  const progressed = withProgress(stream, fold.progress, now);
  if (progressed === stream)
    return {stream, countedShards: [], unfit, waiting, events: [], hasMore: false, needsSpecCheck};
  const {counted} = fold;
  const advanced = withTraffic(progressed, bytesOf(fold.counted));
  const events = counted.map(shard => storedEvent(stream, shard));
  if (advanced.status === 'completed') events.push(eventOf(stream, 'is complete'));
  const hasMore = all.counted.length > counted.length;
  return {stream: advanced, countedShards: counted, unfit, waiting, events, hasMore, needsSpecCheck};
}

const bytesOf = (shards: readonly Shard[]) => shards.reduce((sum, {size_bytes}) => sum + size_bytes, 0);

function failed(before: Stream, reason: string, now: number): Advance {
  const stream = failedFor(before, reason, now);
  const events = stream === before ? [] : [eventOf(before, `failed: ${reason}`)];
  return {stream, countedShards: [], unfit: [], waiting: [], events, hasMore: false, needsSpecCheck: false};
}

function eventOf({run, stream}: Stream, text: string): TimelineEvent {
  return {kind: 'stream', run, stream, text: `Stream ${run}/${stream} ${text}`};
}

function storedEvent({run, stream}: Stream, shard: Shard): TimelineEvent {
  const rejected = shard.rejected > 0 ? `, ${shard.rejected} rejected` : '';
  const samples = `samples ${shard.first_sample}-${shard.last_sample}${rejected}`;
  const text = `Shard ${shard.shard} of ${run}/${stream} stored: ${samples}`;
  return {kind: 'shard', run, stream, object: shard.object, text};
}
