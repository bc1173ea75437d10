import type {z} from 'zod';
import {Rejected} from '../../contracts/errors.ts';
import type {Deps} from '../deps.ts';
import {wake} from '../wake.ts';
import type {Command, CommandOutcome} from './commands/command.ts';
import {COMMANDS, controlMessage} from './commands/table.ts';
import {handleMessage, type Published, recordMessage, recordPath} from './message-records.ts';

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
      const decided = await row.decide(deps, tx, message, {published_at, now});
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
