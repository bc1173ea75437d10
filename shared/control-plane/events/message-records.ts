/** Records of the messages of operators: `control/{message_id}`, and an event beside it. */
import {createHash} from 'node:crypto';
import type {z} from 'zod';
import {KEPT_DAYS} from '../../contracts/config.ts';
import {Rejected} from '../../contracts/errors.ts';
import {pushId, rawText, readPush} from '../../contracts/push.ts';
import {rejectRepeatedKey} from '../../contracts/repeated-key.ts';
import {parseJson} from '../../contracts/schemas.ts';
import {paths} from '../../domain/names.ts';
import {iso} from '../../domain/time.ts';
import type {Transaction} from '../../ports.ts';
import type {Deps} from '../deps.ts';
import {recordEvent} from '../documents/event-log.ts';
import {controlRecords, MAX_TEXT} from '../documents/history-documents.ts';
import type {CommandOutcome} from './commands/command.ts';

/** A published message. `published_at` is undefined if the push lacks the publish time. */
export type Published = {text: string; published_at: string | undefined};

/** Path of the record of a message. Firestore accepts its id: ids of Pub/Sub are digits and stay as they are. */
export function recordPath(message_id: string): string {
  const isPlain = /^[A-Za-z0-9-]{1,128}$/.test(message_id);
  return paths.control(isPlain ? message_id : createHash('sha256').update(message_id).digest('hex'));
}

export function recordMessage(
  tx: Transaction,
  path: string,
  {text, published_at}: Published,
  {outcome, reason, about}: CommandOutcome,
  now: number,
): void {
  controlRecords.set(tx, path, {
    ...{outcome, reason, ...about},
    message: text.slice(0, MAX_TEXT).toWellFormed(),
    published_at: published_at ?? null,
    at: iso(now),
    expire_at: iso(now + KEPT_DAYS.commands * 86_400_000),
  });
  const message_id = path.slice(path.indexOf('/') + 1);
  recordEvent(
    tx,
    {kind: 'control', ...about, message_id, text: `Control message ${outcome}: ${reason}`},
    now,
  );
}

/** Records a rejected message, unless an earlier delivery has its record. */
async function recordRejected(
  {store, now}: Deps,
  path: string,
  published: Published,
  reason: string,
): Promise<void> {
  const refusal: CommandOutcome = {outcome: 'rejected', reason, about: {}};
  await store.transaction(async tx => {
    if (!(await tx.get(path))) recordMessage(tx, path, published, refusal, now());
  });
}

/**
 * Reads the message of an operator, and does what it asks for. A rejected message changes nothing, and its record has the reason. The record
 * of an event without a readable message has the whole event.
 */
export async function handleMessage<T>(
  deps: Deps,
  event: unknown,
  {topic, schema}: {topic: string; schema: z.ZodType<T>},
  work: (message: T, message_id: string, published: Published) => Promise<void>,
): Promise<void> {
  const message_id = pushId(event);
  let published: Published = {text: rawText(event), published_at: undefined};
  try {
    published = readPush(event, `The ${topic} event`);
    if (published.text === '')
      throw new Rejected('The message has no data: publish the command as its data, in JSON');
    const message = parseJson(schema, published.text, 'The message');
    rejectRepeatedKey(published.text, 'The message');
    await work(message, message_id, published);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    await recordRejected(deps, recordPath(message_id), published, error.message);
    deps.log('WARNING', error.message, {message_id});
  }
}
