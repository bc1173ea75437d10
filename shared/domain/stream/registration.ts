import {slotsFor} from '../fleet/slots.ts';
import {streamIndexOf} from '../names.ts';
import type {Pool} from '../records/pool.ts';
import type {Run} from '../records/run.ts';
import {type Content, isUnfinished, newStream, type Stream, TRIED_AGAIN} from '../records/stream.ts';
import {iso, msOf} from '../time.ts';
import type {TimelineEvent} from '../timeline.ts';

/** A stream object in the bucket. `crc32c`, `epoch`: for a new stream, from its shards in the bucket, see `originOfShards`. */
export type DroppedStream = {
  stream: string;
  content: Content;
  created_at: string;
  origin: {crc32c: string; epoch: number};
  bucket: string;
  model: string;
};

export type Registration = {
  /** Returns the same object if nothing changes. Undefined for a new stream that is refused. */
  stream: Stream | undefined;
  refusal: string | undefined;
  /** The run was stopped, so it accepts no further stream. */
  isClosed: boolean;
  reopens: boolean;
  events: TimelineEvent[];
};

/** Registers a stream object with its run. `pool`: only for a run whose streams are bound to slots. */
export function decideRegistration(
  run: Run,
  before: Stream | undefined,
  object: DroppedStream,
  pool: Pool | undefined,
  now: number,
): Registration {
  const {content, stream} = object;
  if (isClosed(run, before, object)) {
    const refusal = `${content.object} is ignored: run "${run.run}" was stopped, and a stop is final; drop it under another run`;
    return {stream: before, refusal, isClosed: true, reopens: false, events: []};
  }
  const registered = before ? registerAgain(before, object, now) : registerFirst(run, object, now);
  const {next, refusal, text} = unlessEmpty(registered, before);
  const about = {kind: 'stream', run: run.run, stream, object: content.object} as const;
  const events = next === before ? [] : [{...about, text: `${text}${slotText(run, next, pool)}`}];
  const isNew = next.status !== before?.status || isUnfinished(next);
  const isTriedAgain = before?.status === 'failed' && next.status === 'pending';
  const reopens = isNew && (run.certain_failure === null || isTriedAgain);
  return {stream: next, refusal, isClosed: false, reopens, events};
}

/**
 * True if the run was stopped and therefore refuses the object. If the database was lost, a stream from before the stop is registered again,
 * unless the documents of its streams had been deleted.
 */
function isClosed({status, stopped_at, expired_at}: Run, before: unknown, object: DroppedStream): boolean {
  const isLate = msOf(object.created_at) > msOf(stopped_at ?? iso(0));
  if (status !== 'stopped') return stopped_at !== null && isLate;
  return before !== undefined || isLate || expired_at !== null;
}

function slotText(run: Run, {worker_id}: Stream, pool: Pool | undefined): string {
  const slots = pool && slotsFor(pool, run, worker_id);
  if (!slots) return '';
  if (slots.length > 0) return `; it is for ${slots}`;
  return `; it waits for TPU number ${worker_id - run.stream_offset}, which the pool does not have (affinity: fixed): scale the pool`;
}

/** `next`: the same object if nothing changes. `refusal`: why the object is not accepted. */
type Registered = {next: Stream; refusal?: string; text: string};

function registerFirst({run}: Run, object: DroppedStream, now: number): Registered {
  const {stream, content, origin, bucket, model} = object;
  const next = {...newStream(run, streamIndexOf(stream), content, {bucket, model, now}), ...origin};
  return {next, text: `Stream ${run}/${stream} accepted: ${content.size_bytes} bytes`};
}

const refused = (next: Stream, refusal: string): Registered => ({next, refusal, text: refusal});

/** Fails a new or changed stream that has no records. */
function unlessEmpty(registered: Registered, before: Stream | undefined): Registered {
  const {next, refusal} = registered;
  if (next === before || refusal !== undefined || next.size_bytes > 0) return registered;
  const last_error = `${next.object} is empty: it holds no record`;
  return refused({...next, status: 'failed', last_error}, last_error);
}

/**
 * Registers a stream object under an index that the run already has.
 * The same content changes only the generation to fetch. New content is accepted until the first lease, and after a failure without a shard.
 * Other new content is refused, and an unfinished stream fails, because its shards would mix two contents. Such a stream refuses all new
 * content: otherwise a second delivery would find a failed stream without a shard. A completed stream stays as it is.
 */
export function registerAgain(
  stream: Stream,
  {content, created_at}: Pick<DroppedStream, 'content' | 'created_at'>,
  now: number,
): Registered {
  if (content.object !== stream.object)
    return refused(
      stream,
      `${content.object} has the same index as ${stream.object}, which was there first: rename it to a free index`,
    );
  if (BigInt(content.generation) <= BigInt(stream.generation))
    return {next: stream, text: 'this generation, or a newer one, is registered already'};
  const name = `Stream ${stream.run}/${stream.stream}`;
  const newest = {...stream, ...content, refused_generation: null, updated_at: iso(now)};
  // The event of an upload may arrive after a message has cancelled the stream.
  const isStale = msOf(stream.message_times.status_at ?? iso(0)) > msOf(created_at);
  const again = isStale ? {} : TRIED_AGAIN;
  if (content.crc32c === stream.crc32c && content.size_bytes === stream.size_bytes)
    return stream.status === 'failed'
      ? {
          next: {...newest, ...again},
          text: `${name}: the same content was uploaded again${isStale ? '' : ', and is tried again'}`,
        }
      : {next: newest, text: `${name}: the same content was uploaded again`};
  const {refused_generation, status} = stream;
  const failedItself = status === 'failed' && refused_generation === null;
  if (stream.total_shards === 0 && (stream.epoch === 0 || failedItself))
    return {
      next: {...newest, ...again},
      text: `${name}: the stream was replaced before anything of it was stored`,
    };
  const reason = `${stream.object} was overwritten after work on it began (generation ${stream.generation}, now ${content.generation}): shards of two contents would mix. Drop the new content as another stream or run, or the first content again`;
  const isRefused = status === 'failed' && refused_generation === content.generation;
  if (status === 'completed' || isRefused) return refused(stream, reason);
  const failed: Stream = {
    ...stream,
    status: 'failed',
    lease: null,
    last_error: reason,
    refused_generation: content.generation,
    updated_at: iso(now),
  };
  return refused(failed, reason);
}

/** Chooses among objects of one index: the one from which the stored shards were made, or else the oldest. */
export function originAmong<T extends {name: string; crc32c: string; created_at: string}>(
  objects: readonly T[],
  stored_crc32c: string | undefined,
): T | undefined {
  const isStored = ({crc32c}: T) => Number(crc32c === stored_crc32c);
  const [first] = [...objects].sort(
    (a, b) =>
      isStored(b) - isStored(a) || a.created_at.localeCompare(b.created_at) || a.name.localeCompare(b.name),
  );
  return first;
}
