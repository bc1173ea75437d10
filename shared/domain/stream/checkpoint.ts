/**
 * The checkpoint of a stream, from the shards in the bucket. Shards may be seen in any order.
 * Only the prefix without a gap counts, so a sample counts as stored only when every sample before it is.
 */
import {z} from 'zod';
import {MAX_EPOCH, MAX_SHARD_SAMPLES, MAX_SHARD_TOKENS} from '../bounds.ts';
import {withEntry} from '../digest.ts';
import {count, emptyOf, instant, integer, orNull, stored, text} from '../fields.ts';

/** A shard object and its custom metadata. */
export const shardDocument = stored({
  shard: count.describe('Number of the shard in its stream, from 1.'),
  object: text.describe('Name of the shard object in the bucket.'),
  epoch: integer.min(1).max(MAX_EPOCH).describe('Epoch of the lease under which the shard was stored.'),
  first_sample: count.describe('Index of the first sample of the range.'),
  last_sample: count.describe('Index of the last sample of the range.'),
  samples: count.max(MAX_SHARD_SAMPLES).describe('Stored samples of the range.'),
  rejected: count.max(MAX_SHARD_SAMPLES).describe('Rejected samples of the range.'),
  tokens: count.max(MAX_SHARD_TOKENS).describe('Tokens of the stored samples.'),
  size_bytes: count.describe('Bytes of the object.'),
  sha256: text.describe('SHA-256 of the object, as its TPU states it.'),
  spec_hash: text.describe('The spec under which the shard was made.'),
  stream_crc32c: text.describe('CRC-32C of the stream content from which the shard was made.'),
  final: z.boolean().describe('True for the last shard of the stream.'),
  stored_at: instant
    .nullable()
    .describe('Time of the object in the bucket; null if the event did not say so.'),
});
export type Shard = z.infer<typeof shardDocument>;

/** Stored part of a stream: the totals of its first `total_shards` shards. */
export const progress = {
  last_processed_sample_idx: integer
    .min(-1)
    .describe(
      'Index of the last sample of the gapless stored shards; -1 without a shard. Work continues behind it.',
    ),
  total_samples_processed: count.describe('Stored samples.'),
  total_shards: count.describe('Stored shards without a gap.'),
  rejected_samples: count.describe('Rejected samples.'),
  total_tokens: count.describe('Tokens of the stored samples.'),
  total_bytes: count.describe('Bytes of the stored shards.'),
  digest: orNull(text).describe(
    '[Digest](formats.md#the-digest-of-a-run) of the stored shards; null before the first.',
  ),
  finished: z.boolean().describe('True when the final shard is stored.'),
};
export type Progress = z.infer<z.ZodObject<typeof progress>>;

export const NOTHING_STORED: Progress = {...emptyOf(progress), last_processed_sample_idx: -1};

/** Spec and content of every shard of a stream, and the largest granted epoch. */
export type Origin = {spec_hash: string; stream_crc32c: string; epoch: number};

/** `ungranted`: the first shard with an epoch above every granted one. Shards from there on do not count. */
export type Fold =
  | {kind: 'ok'; progress: Progress; counted: Shard[]; waiting: number[]; ungranted: Shard | undefined}
  | {kind: 'error'; reason: string};

const broken = (reason: string): Fold => ({kind: 'error', reason});

/**
 * Adds `shards` to `from`. Shards that `from` already counts are skipped, and shards behind a gap wait.
 * Two shards of one number, or with a common sample, are an error.
 * A shard behind the final shard, of another spec or of another content is an error too, and so is an inexact sum.
 */
export function foldShards(from: Progress, origin: Origin, shards: readonly Shard[]): Fold {
  const sorted = [...shards].sort((a, b) => a.shard - b.shard);
  let progress = from;
  let last: Shard | undefined;
  let ungranted: Shard | undefined;
  const counted: Shard[] = [];
  for (const [index, shard] of sorted.entries()) {
    const twin = sorted[index + 1];
    if (twin?.shard === shard.shard)
      return broken(`${shard.object} and ${twin.object} are both shard ${shard.shard}`);
    const foreign = foreignTo(origin, shard);
    if (foreign) return broken(foreign);
    if (progress.finished && shard.shard > progress.total_shards)
      return broken(
        `${shard.object} comes after shard ${progress.total_shards}, which says that it is the last`,
      );
    if (shard.shard > from.total_shards && shard.epoch > origin.epoch) ungranted ??= shard;
    if (shard.shard !== progress.total_shards + 1 || ungranted) continue;
    const misfit = misfitAfter(progress, last, shard);
    if (misfit) return broken(misfit);
    const next = {
      last_processed_sample_idx: shard.last_sample,
      total_samples_processed: progress.total_samples_processed + shard.samples,
      total_shards: shard.shard,
      rejected_samples: progress.rejected_samples + shard.rejected,
      total_tokens: progress.total_tokens + shard.tokens,
      total_bytes: progress.total_bytes + shard.size_bytes,
      digest: withEntry(progress.digest, shard.sha256, shard.object.slice(shard.object.lastIndexOf('/') + 1)),
      finished: shard.final,
    };
    const excess = sumBeyondBounds(next);
    if (excess)
      return broken(`${shard.object} brings ${excess} of its stream above ${Number.MAX_SAFE_INTEGER}`);
    progress = next;
    last = shard;
    counted.push(shard);
  }
  const behind = sorted.filter(shard => shard.shard > progress.total_shards);
  return {kind: 'ok', progress, counted, waiting: behind.map(shard => shard.shard), ungranted};
}

function sumBeyondBounds(progress: Progress): string | undefined {
  return Object.entries(progress).find(
    ([, sum]) => typeof sum === 'number' && !Number.isSafeInteger(sum),
  )?.[0];
}

/**
 * Content and epoch of a stream document that is created or repaired from shards. The content is that of the stream object.
 * Exception: a complete set of shards of another content.
 * Their stream was complete before its document was lost, and stays complete.
 */
export function originOfShards(crc32c: string, spec_hash: string, shards: readonly Shard[]) {
  const epoch = largestEpoch(shards);
  const [stored] = shards;
  if (!stored || stored.stream_crc32c === crc32c) return {crc32c, epoch};
  const {stream_crc32c} = stored;
  const whole = foldShards(NOTHING_STORED, {spec_hash, stream_crc32c, epoch}, shards);
  return {crc32c: whole.kind === 'ok' && whole.progress.finished ? stream_crc32c : crc32c, epoch};
}

export function largestEpoch(shards: readonly Shard[]): number {
  return shards.reduce((most, {epoch}) => Math.max(most, epoch), 0);
}

function foreignTo(origin: Origin, shard: Shard): string | undefined {
  if (shard.spec_hash !== origin.spec_hash)
    return `${shard.object} was made with spec ${shard.spec_hash.slice(0, 12)}, this run has spec ${origin.spec_hash.slice(0, 12)}`;
  if (shard.stream_crc32c !== origin.stream_crc32c)
    return `${shard.object} was made from other content of its stream (crc32c ${shard.stream_crc32c}, now ${origin.stream_crc32c})`;
  return undefined;
}

function misfitAfter(progress: Progress, last: Shard | undefined, shard: Shard): string | undefined {
  const expected = progress.last_processed_sample_idx + 1;
  const range = shard.last_sample - shard.first_sample + 1;
  const before = last ? last.object : `shard ${progress.total_shards}`;
  if (shard.first_sample !== expected)
    return `${shard.object} starts at sample ${shard.first_sample}, but ${before} ends at sample ${expected - 1}`;
  if (range < 1 || shard.samples + shard.rejected !== range)
    return `${shard.object} covers ${range} samples, but counts ${shard.samples} stored and ${shard.rejected} rejected`;
  return undefined;
}
