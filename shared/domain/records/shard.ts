import {z} from 'zod';
import {MAX_LEASE_EPOCH, MAX_SHARD_SAMPLES, MAX_SHARD_TOKENS} from '../bounds.ts';
import {count, emptyOf, instant, integer, orNull, stored, text} from '../fields.ts';

/** A shard object and its custom metadata. */
export const shardDocument = stored({
  shard: count.describe('Number of the shard in its stream, from 1.'),
  object: text.describe('Name of the shard object in the bucket.'),
  epoch: integer.min(1).max(MAX_LEASE_EPOCH).describe('Epoch of the lease under which the shard was stored.'),
  first_sample: count.describe('Index of the first sample of the range.'),
  last_sample: count.describe('Index of the last sample of the range.'),
  samples: count.max(MAX_SHARD_SAMPLES).describe('Stored samples of the range.'),
  rejected: count.max(MAX_SHARD_SAMPLES).describe('Rejected samples of the range.'),
  tokens: count.max(MAX_SHARD_TOKENS).describe('Tokens of the stored samples.'),
  size_bytes: count.describe('Bytes of the object.'),
  sha256: text.describe('SHA-256 of the object, as its TPU states it.'),
  spec_hash: text.describe('The spec under which the shard was made.'),
  stream_crc32c: text.describe('CRC-32C of the stream content from which the shard was made.'),
  proof: orNull(text).describe(
    '[Proof](../formats.md#shards) of the lease under which the shard was stored.',
  ),
  final: z.boolean().describe('True for the last shard of the stream.'),
  stored_at: orNull(instant).describe('Time of the object in the bucket; null if the event did not say so.'),
});

export type Shard = z.infer<typeof shardDocument>;

/** The stored part of a stream: totals of its first `total_shards` shards. */
export const progress = {
  last_processed_sample_idx: integer
    .min(-1)
    .describe(
      'Index of the last sample that is stored without a gap; -1 without a shard. Work continues after it.',
    ),
  total_samples_processed: count.describe('Stored samples.'),
  total_shards: count.describe('Stored shards without a gap.'),
  rejected_samples: count.describe('Rejected samples.'),
  total_tokens: count.describe('Tokens of the stored samples.'),
  total_bytes: count.describe('Bytes of the stored shards.'),
  digest: orNull(text).describe(
    '[Digest](../formats.md#the-digest-of-a-run) of the stored shards; null before the first.',
  ),
  finished: z.boolean().describe('True when the final shard is stored.'),
};

export type Progress = z.infer<z.ZodObject<typeof progress>>;

export const NOTHING_STORED: Progress = {...emptyOf(progress), last_processed_sample_idx: -1};
