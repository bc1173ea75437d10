import {withTraffic} from '../billing/network.ts';
import type {TimelineEvent} from '../timeline.ts';
import {foldShards, type Shard} from './checkpoint.ts';
import {blockedBy, failedFor, type Stream, withProgress} from './stream.ts';

export type StoredShards = {kind: 'ok'; shards: Shard[]} | {kind: 'error'; reason: string};

export type Advance = {
  stream: Stream;
  counted: readonly Shard[];
  events: TimelineEvent[];
  /** The next transaction counts further shards, or blocks the stream. */
  hasMore: boolean;
  /** The run may have started again under its name: its document must still have the spec that the caller knows. */
  needsSpecCheck: boolean;
};

/** Shards of one transaction, with two documents each: a commit must stay far below Firestore's 10 MiB. */
const MOST_AT_ONCE = 200;

/** Advances the checkpoint to the stored shards. Inconsistent shards, and a shard that no lease explains, fail the stream. */
export function decideAdvance(stream: Stream, spec_hash: string, stored: StoredShards, now: number): Advance {
  const {epoch, crc32c, status, total_shards} = stream;
  const origin = {spec_hash, stream_crc32c: crc32c, epoch};
  const all = stored.kind === 'ok' ? foldShards(stream, origin, stored.shards) : stored;
  if (all.kind === 'error') return {...failed(stream, all.reason, now), needsSpecCheck: true};
  const fold = foldShards(stream, origin, all.counted.slice(0, MOST_AT_ONCE));
  if (fold.kind === 'error') throw new Error(`${stream.run}/${stream.stream}: ${fold.reason}`);
  const progressed = withProgress(stream, fold.progress, now);
  const advanced = progressed === stream ? stream : withTraffic(progressed, bytesOf(fold.counted));
  // Shards from before the first lease may belong to an earlier run of this name.
  const needsSpecCheck = total_shards === 0 && status !== 'in_progress';
  if (advanced === stream) {
    const blocked = all.ungranted ? blockedBy(stream, all.ungranted, now) : stream;
    return {...unadvanced(stream, blocked, `is blocked: ${blocked.blocked_reason}`), needsSpecCheck};
  }
  const {counted} = fold;
  const events = counted.map(shard => storedEvent(stream, shard));
  if (advanced.status === 'completed') events.push(eventOf(stream, 'is complete'));
  const hasMore = all.counted.length > counted.length || all.ungranted !== undefined;
  return {stream: advanced, counted, events, hasMore, needsSpecCheck};
}

const bytesOf = (shards: readonly Shard[]) => shards.reduce((sum, {size_bytes}) => sum + size_bytes, 0);

/** Fails a stream with two objects for one shard number. */
export function decideTwin(stream: Stream, shard: number, objects: [string, string], now: number): Advance {
  return failed(stream, `${objects.join(' and ')} are both shard ${shard}`, now);
}

function failed(stream: Stream, reason: string, now: number): Advance {
  return unadvanced(stream, failedFor(stream, reason, now), `failed: ${reason}`);
}

function unadvanced(before: Stream, stream: Stream, text: string): Advance {
  const events = stream === before ? [] : [eventOf(stream, text)];
  return {stream, counted: [], events, hasMore: false, needsSpecCheck: false};
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
