/** Documents of the past: shards, events, control messages and attempts of slots. */
import {z} from 'zod';
import {describing, instant, text} from '../../domain/fields.ts';
import {shardDocument} from '../../domain/stream/checkpoint.ts';
import {attemptDocument} from '../../domain/worker/attempt.ts';
import {recordsOf} from './document-kind.ts';

/** Most characters of a text from a message, a name or an error: a document holds at most 1 MiB. */
export const MAX_TEXT = 4000;

export const shardRecords = recordsOf(shardDocument);

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

export const attemptRecords = recordsOf(attemptDocument);
