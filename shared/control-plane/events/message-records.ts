/** Records of the messages of operators: `control/{message_id}`, and an event beside it. */
import {createHash} from 'node:crypto';
import {paths} from '../../domain/names.ts';
import {iso} from '../../domain/time.ts';
import type {Transaction} from '../../ports.ts';
import type {Deps} from '../deps.ts';
import {recordEvent} from '../documents/event-log.ts';
import {controlRecords, MAX_TEXT} from '../documents/history-documents.ts';
import type {CommandOutcome} from './commands/command.ts';

/** A published message. `published_at` is undefined if the push lacks the publish time. */
export type Published = {text: string; published_at: string | undefined};

const KEPT_DAYS = 90;

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
    expire_at: iso(now + KEPT_DAYS * 86_400_000),
  });
  const message_id = path.slice(path.indexOf('/') + 1);
  recordEvent(
    tx,
    {kind: 'control', ...about, message_id, text: `Control message ${outcome}: ${reason}`},
    now,
  );
}

/** Records a rejected message, unless an earlier delivery has its record. */
export async function recordRejected(
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
