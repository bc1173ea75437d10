/** Documents of the past: shards, events, control messages and attempts of slots. */
import {z} from 'zod';
import {describing, instant, text} from '../../domain/fields.ts';
import {shardDocument} from '../../domain/stream/checkpoint.ts';
import {EVENT_KINDS} from '../../domain/timeline.ts';
import {attemptDocument} from '../../domain/worker/attempt.ts';
import {recordsOf} from './document-kind.ts';

/** Most characters of a text from a message, a name or an error: a document holds at most 1 MiB. */
export const MAX_TEXT = 4000;

export const shardRecords = recordsOf(shardDocument);

export const eventRecords = recordsOf(
  z.looseObject({
    kind: describing(EVENT_KINDS).describe(
      'Subject of the event: `run`, `stream`, `shard`, `worker`, `zone`, `rejected`, `control`, `job` or `exec`; or `contradiction`, an object that exists with other bytes than were to be created.',
    ),
    text: text.max(MAX_TEXT).describe('The event as a sentence.'),
    at: instant.describe('Time of the event. Sort by this field.'),
    expire_at: instant.describe(
      'Firestore deletes the document some time after this: 30 days after its time.',
    ),
  }),
);

export const controlRecords = recordsOf(
  z.looseObject({
    outcome: describing(['applied', 'rejected']).describe('`applied` or `rejected`.'),
    reason: text.describe('What was done, or why the message was rejected.'),
    message: text.max(MAX_TEXT).describe('The message as it arrived, cut after 4,000 characters.'),
    at: instant.describe('Time at which the message was decided.'),
    expire_at: instant.describe('Firestore deletes the document some time after this.'),
  }),
);

export const attemptRecords = recordsOf(attemptDocument);
