/**
 * The largest numbers that a request, a shard or a document may hold. A larger number is a bug or an attack: JavaScript counts
 * exactly to 2^53 - 1 only, and a document beyond that could never be read again.
 */

/** Of a shard: the grants of one stream, one a minute for two years. A shard above it fails its stream by name. */
export const MAX_EPOCH = 1_000_000;
/** Of documents and requests: above every shard, so that a shard of the largest epoch never makes the next lease unwritable. */
export const MAX_LEASE_EPOCH = 2 * MAX_EPOCH;
/** The numbers in names: shards, streams, lives of a slot and hosts have at most nine digits. */
export const MAX_ORDINAL = 999_999_999;
/** Of one shard: `shard_size_gb` and its rows keep far below. */
export const MAX_SHARD_SAMPLES = 1e9;
export const MAX_SHARD_TOKENS = 1e12;
/** Of one stream, as its worker counts: a thousand of the largest shards. */
export const MAX_STREAM_SAMPLES = 1e12;
export const MAX_STREAM_TOKENS = 1e15;
/** Longest timeout of a job: a week. */
export const MAX_TIMEOUT_S = 604_800;
