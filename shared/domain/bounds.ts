/**
 * Largest numbers in requests, shards and documents. JavaScript counts exactly to 2^53 - 1 only. A write of a larger number throws,
 * because no reader accepts its document.
 */

/** Largest epoch of a shard: one grant a minute for two years. A shard with a larger epoch fails its stream. */
export const MAX_EPOCH = 1_000_000;
/** Largest epoch of a lease. A lease granted after a shard of the largest epoch stays below it. */
export const MAX_LEASE_EPOCH = 2 * MAX_EPOCH;
/** Largest number in a name, of nine digits: of a shard, a stream, an incarnation or a host. */
export const MAX_ORDINAL = 999_999_999;
/** Largest counts of a shard. `shard_size_gb` keeps real shards far below. */
export const MAX_SHARD_SAMPLES = 1e9;
export const MAX_SHARD_TOKENS = 1e12;
/** Largest counts of a stream, as its worker reports them: a thousand of the largest shards. */
export const MAX_STREAM_SAMPLES = 1e12;
export const MAX_STREAM_TOKENS = 1e15;
export const MAX_TIMEOUT_S = 604_800;
/** Most slices of one job: one transaction leases all of them. */
export const MAX_SLICES = 16;
