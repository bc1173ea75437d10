/** Messages of operators on topics `control` and `exec`. Each has a record, `control/{message_id}`, or the document of its command. */

import {createHash} from 'node:crypto';
import type {z} from 'zod';
import {Rejected} from '../../contracts/errors.ts';
import {execMessage} from '../../contracts/messages/job-schemas.ts';
import {pushId, rawText, readPush} from '../../contracts/messages/push.ts';
import {rejectRepeatedKey} from '../../contracts/messages/repeated-key.ts';
import {parseJson} from '../../contracts/messages/schemas.ts';
import {KEPT_DAYS} from '../../contracts/settings/config.ts';
import {paths} from '../../domain/names.ts';
import {iso} from '../../domain/time.ts';
import type {Transaction} from '../../ports/ports.ts';
import {wake} from '../calls/wake.ts';
import type {Deps} from '../deps.ts';
import {controlRecords, MAX_TEXT} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {startExec} from '../execs/start-exec.ts';
import type {Command, CommandOutcome} from './commands/command.ts';
import {COMMANDS, controlMessage} from './commands/table.ts';

/**
 * Applies a message on topic `control` once. The transaction of the change also writes a record under the message id, so a redelivered
 * message changes nothing. The after-effects are repeated, because an earlier delivery may have died before them.
 */
export async function handleControlMessage(deps: Deps, event: unknown): Promise<void> {
  const {store, log, bus} = deps;
  const of = {topic: 'control', schema: controlMessage};
  await handleMessage(deps, event, of, async (message, message_id, published) => {
    const published_at = publishTimeOf(published);
    const path = recordPath(message_id);
    const row = COMMANDS[message.action] as unknown as Command<z.ZodObject>;
    await row.prepare?.(deps, message);
    const {outcome, reason} = await store.transaction(async tx => {
      const before = await tx.get(path);
      if (before) return {outcome: before.outcome as CommandOutcome['outcome'], reason: 'done before'};
      const now = deps.now();
      const decided = await row.decide({deps, tx, published_at, now}, message);
      recordMessage(tx, path, published, decided, now);
      return decided;
    });
    log(outcome === 'applied' ? 'INFO' : 'WARNING', reason, {message_id});
    if (outcome !== 'applied') return;
    await row.after?.(deps, message);
    await wake(bus);
  });
}

function publishTimeOf({published_at}: Published): string {
  if (published_at !== undefined) return published_at;
  throw new Rejected(
    'The message has no publishTime, so its order is unknown: publish the message through Pub/Sub',
  );
}

/**
 * Starts the command of a message on topic `exec` once. Its document shows the result. A malformed message, or one whose id is taken, creates
 * no document: it is recorded like a rejected control message.
 */
export async function handleExecMessage(deps: Deps, event: unknown): Promise<void> {
  await handleMessage(deps, event, {topic: 'exec', schema: execMessage}, async (message, message_id) => {
    const reason = await startExec(deps, message, message_id);
    if (reason !== undefined) throw new Rejected(reason);
  });
}

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

/** Records a rejected message, unless an earlier delivery has done so. */
async function recordRejected({store, now}: Deps, path: string, published: Published, reason: string) {
  const refusal: CommandOutcome = {outcome: 'rejected', reason, about: {}};
  await store.transaction(async tx => {
    if (!(await tx.get(path))) recordMessage(tx, path, published, refusal, now());
  });
}

/**
 * Reads the message of an operator and executes it. A rejected message changes nothing, and its record has the reason. If an event has no
 * readable message, the record has the whole event.
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
