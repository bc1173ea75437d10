import {z} from 'zod';
import {
  amount,
  count,
  emptyOf,
  epoch,
  incarnation,
  instant,
  message_times,
  orNull,
  stored,
  text,
} from '../fields.ts';
import {streamId} from '../names.ts';
import {iso} from '../time.ts';
import {NOTHING_STORED, type Progress, progress} from './shard.ts';

/**
 * The right of one worker incarnation to work on a stream or a job, for as long as its heartbeats arrive.
 * The worker's document holds the same lease, and every change writes both, so a heartbeat writes only the worker.
 * Epochs only grow, so an old lease is recognised.
 */
export const lease = stored({worker: text, incarnation, epoch});
export type Lease = z.infer<typeof lease>;

const content = {
  object: text.describe('Name of the stream object in the bucket.'),
  generation: text.describe('Generation of the object that TPUs fetch.'),
  size_bytes: count.describe('Bytes of the object.'),
  crc32c: text.describe('CRC-32C of the object in base64, as Cloud Storage writes it.'),
};
export type Content = z.infer<z.ZodObject<typeof content>>;

/**
 * A stream document: the fields of the seeds' checkpoint, of the stream object and of the lease, at the top level.
 * `pending`: no worker holds the stream. `in_progress`: a worker holds its lease. `completed`: the final shard is stored.
 * `failed`: the stream is not retried until a message asks for it; see `last_error`.
 */
export const streamDocument = stored({
  run: text.describe('Id of the run.'),
  stream: text.describe('Id of the stream, with three digits or more: `007`.'),
  worker_id: count.describe(
    'Number of the stream: 7 for `007`. The name comes from the first design; it does not name a TPU. Shards lie in `tpu_7/`.',
  ),
  ...content,
  dataset_path: text.describe('Address of the object: `gs://BUCKET/OBJECT`.'),
  model_path: text.describe('Model of the run, as its spec names it.'),
  status: z
    .enum(['pending', 'in_progress', 'completed', 'failed'])
    .describe('Status word of the stream; [Operations](../operations.md) explains each.'),
  epoch: epoch.describe(
    'Count of leases ever granted. Every grant adds 1, so the work of an older holder is recognised and refused.',
  ),
  lease: orNull(lease).describe('The holder: `worker`, `incarnation` and `epoch`. Null without a holder.'),
  ...progress,
  lease_shards: count.describe(
    'Value of `total_shards` at the last grant. A higher total: the lease has stored a shard.',
  ),
  ended_epoch: count.describe(
    'Last epoch whose lease was released. Shards of it that come later do not count.',
  ),
  kept_shards: z
    .array(count)
    .describe(
      'Numbers of the shards after a gap at the last grant or rebuild: they count although an earlier lease stored them.',
    ),
  lease_key: orNull(text).describe(
    'Key of the last grant: shards prove their lease with it. Null before the first grant of this document.',
  ),
  failures: count.describe(
    'Failures that the stream itself caused. At three the stream is `failed`. Preemptions never count.',
  ),
  failed_workers: z
    .array(text)
    .describe('`WORKER/INCARNATION` of each of these failures: one of them counts once.'),
  faults: count.describe(
    'Machines in a row that failed at the stream without a stored shard. At five the stream is `failed`. A stored shard resets the count.',
  ),
  faulted_workers: z
    .array(text)
    .describe('`WORKER/INCARNATION` of each of these machines: one of them counts once.'),
  network_usd_per_byte: amount.describe(
    'Dollars of a byte between the bucket and the TPU of the last lease; 0 within a region.',
  ),
  network_bytes: count.describe('Bytes of the stream and its shards that crossed regions.'),
  network_usd: amount.describe('Dollars of these bytes.'),
  last_error: orNull(text).describe('Text of the last failure; null before the first.'),
  message_times,
  refused_generation: orNull(text).describe(
    'Generation of the object that was refused, because work on the stream had begun with other content. Else null.',
  ),
  created_at: instant.describe('Time at which the document was written first.'),
  updated_at: instant.describe('Time of the last change of the document.'),
});
export type Stream = z.infer<typeof streamDocument>;
export type StreamStatus = Stream['status'];

export const MAX_FAILURES = 3;

export const MAX_FAULTS = 5;

/** Fields of a stream before it has a name, content and shards. */
const NO_STREAM = emptyOf(streamDocument.shape);

export function newStream(
  run: string,
  worker_id: number,
  content: Content,
  at: {bucket: string; model: string; now: number},
): Stream {
  return {
    ...NO_STREAM,
    ...{run, stream: streamId(worker_id), worker_id},
    ...content,
    dataset_path: `gs://${at.bucket}/${content.object}`,
    model_path: at.model,
    status: 'pending',
    ...NOTHING_STORED,
    created_at: iso(at.now),
    updated_at: iso(at.now),
  };
}

export function isUnfinished(stream: Stream): boolean {
  return stream.status === 'pending' || stream.status === 'in_progress';
}

/** The stream with more progress. A stored final shard completes the stream, whatever its lease and failures are. */
export function withProgress(stream: Stream, progress: Progress, now: number): Stream {
  if (progress.total_shards <= stream.total_shards && progress.finished === stream.finished) return stream;
  return {
    ...stream,
    ...progress,
    faults: 0,
    faulted_workers: [],
    ...(progress.finished ? COMPLETED : {}),
    updated_at: iso(now),
  };
}

const NO_FAULTS = {faults: 0, faulted_workers: []};

/** Fields of a failed stream that is tried again. */
export const TRIED_AGAIN: Partial<Stream> = {
  ...{status: 'pending', failures: 0, failed_workers: [], last_error: null},
  ...NO_FAULTS,
};

const COMPLETED = {status: 'completed', lease: null, last_error: null} as const;

/**
 * The stream with the progress found in the bucket, even if it is less than before. A worker continues there. Shards after a gap stay. The
 * next grant is above the epoch of every shard.
 */
export function withRebuilt(
  stream: Stream,
  {progress, epoch, kept_shards}: {progress: Progress; epoch: number; kept_shards: number[]},
  now: number,
): Stream {
  const {status} = stream;
  const rebuilt: Stream = {
    ...stream,
    ...progress,
    epoch: Math.max(stream.epoch, epoch),
    kept_shards,
    ...(progress.total_shards > stream.total_shards ? NO_FAULTS : {}),
    updated_at: iso(now),
  };
  if (progress.finished) return {...rebuilt, ...COMPLETED};
  return {...rebuilt, status: status === 'completed' ? 'pending' : status};
}

/** Fails a stream that has shards of an earlier run. A stream that has already failed keeps its reason. */
export function failedFor(stream: Stream, reason: string, now: number): Stream {
  if (stream.status === 'failed') return stream;
  const last_error = reason.toWellFormed();
  return {...stream, status: 'failed', lease: null, last_error, updated_at: iso(now)};
}
