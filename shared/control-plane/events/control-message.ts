import type {z} from 'zod';
import {Rejected} from '../../contracts/errors.ts';
import {pushId, rawText, readPush} from '../../contracts/push.ts';
import {rejectRepeatedKey} from '../../contracts/repeated-key.ts';
import {parseJson} from '../../contracts/schemas.ts';
import type {Deps} from '../deps.ts';
import {wake} from '../wake.ts';
import type {Command, CommandOutcome} from './commands/command.ts';
import {COMMANDS, controlMessage} from './commands/table.ts';
import {type Published, recordMessage, recordPath, recordRejected} from './message-records.ts';

/**
 * Applies a message on topic `control` once. The transaction of the change also writes a record under the message id, so a redelivered
 * message changes nothing. The after-effects are repeated, because an earlier delivery may have died before them. A rejected message
 * changes nothing, and its record has the reason. The record of an event without a readable message has the whole event.
 */
export async function handleControlMessage(deps: Deps, event: unknown): Promise<void> {
  const {store, log, bus} = deps;
  const message_id = pushId(event);
  const path = recordPath(message_id);
  let published: Published = {text: rawText(event), published_at: undefined};
  try {
    published = readPush(event, 'The control event');
    if (published.text === '')
      throw new Rejected('The message has no data: publish the command as its data, in JSON');
    const published_at = publishTimeOf(published);
    const message = parseJson(controlMessage, published.text, 'The message');
    rejectRepeatedKey(published.text, 'The message');
    const row = COMMANDS[message.action] as unknown as Command<z.ZodObject>;
    await row.prepare?.(deps, message);
    const {outcome, reason} = await store.transaction(async tx => {
      const before = await tx.get(path);
      if (before) return {outcome: before.outcome as CommandOutcome['outcome'], reason: 'done before'};
      const now = deps.now();
      const decided = await row.decide(deps, tx, message, {published_at, now});
      recordMessage(tx, path, published, decided, now);
      return decided;
    });
    log(outcome === 'applied' ? 'INFO' : 'WARNING', reason, {message_id});
    if (outcome !== 'applied') return;
    await row.after?.(deps, message);
    await wake(bus);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    await recordRejected(deps, path, published, error.message);
    log('WARNING', error.message, {message_id});
  }
}

function publishTimeOf({published_at}: Published): string {
  if (published_at !== undefined) return published_at;
  throw new Rejected(
    'The message has no publishTime, so its order is unknown: publish the message through Pub/Sub',
  );
}
