/** Documents of the past: shards, events, control messages and attempts of slots. */
import {z} from 'zod';
import {MAX_EPOCH, MAX_ORDINAL, MAX_SHARD_SAMPLES, MAX_SHARD_TOKENS} from '../../domain/bounds.ts';
import type {WorkerAttempt} from '../../domain/worker/attempt.ts';
import {describing, recordsOf} from './document-kind.ts';

const count = z.number().int().min(0);
const instant = z.iso.datetime();
const text = z.string();

/** Most characters of a text from a message, a name or an error: a document holds at most 1 MiB. */
export const MAX_TEXT = 4000;

export const shardRecords = recordsOf(
  z.looseObject({
    shard: count,
    object: text,
    epoch: z.number().int().min(1).max(MAX_EPOCH),
    first_sample: count,
    last_sample: count,
    samples: count.max(MAX_SHARD_SAMPLES),
    rejected: count.max(MAX_SHARD_SAMPLES),
    tokens: count.max(MAX_SHARD_TOKENS),
    size_bytes: count,
    spec_hash: text,
    stream_crc32c: text,
    final: z.boolean(),
    stored_at: instant.nullable(),
  }),
);

export const eventRecords = recordsOf(
  z.looseObject({
    kind: describing(['run', 'stream', 'shard', 'worker', 'zone', 'rejected', 'control', 'job', 'exec']),
    text: text.max(MAX_TEXT),
    at: instant,
    expire_at: instant,
  }),
);

export const controlRecords = recordsOf(
  z.looseObject({
    outcome: describing(['applied', 'rejected']),
    reason: text,
    message: text.max(MAX_TEXT),
    at: instant,
    expire_at: instant,
  }),
);

const attempt: z.ZodType<WorkerAttempt> = z.looseObject({
  worker: text,
  incarnation: count.max(MAX_ORDINAL),
  cause: text,
  ready_at: instant.nullable(),
  ended_at: instant,
  gone_at: instant.optional(),
  expire_at: instant,
  costs: z.record(text, z.number()),
  cost_usd: z.number(),
});

export const attemptRecords = recordsOf(attempt);
