/** A row of the table of commands: schema, preparation, decision and after-effects of a message. */
import type {z} from 'zod';
import type {Decision} from '../../../domain/commands/commands.ts';
import type {Transaction} from '../../../ports.ts';
import type {Deps} from '../../deps.ts';

export type About = {run?: string; stream?: string; worker?: string; pool?: string; job?: string};
export type CommandOutcome = {outcome: 'applied' | 'rejected'; reason: string; about: About};
/** `published_at` is the publish time, which orders messages. */
export type MessageTimes = {published_at: string; now: number};

export type Command<Schema extends z.ZodObject> = {
  schema: Schema;
  /** Creates the documents that the decision reads. Safe to repeat. */
  prepare?: (deps: Deps, message: z.infer<Schema>) => Promise<void>;
  /** Reads, decides and writes in the transaction that also writes the record of the message. */
  decide: (
    deps: Deps,
    tx: Transaction,
    message: z.infer<Schema>,
    moment: MessageTimes,
  ) => Promise<CommandOutcome>;
  /** Follows an applied decision. Safe to repeat. */
  after?: (deps: Deps, message: z.infer<Schema>) => Promise<void>;
};

/** Keeps the type of the schema for its functions. */
export function command<Schema extends z.ZodObject>(row: Command<Schema>): Command<Schema> {
  return row;
}

/** Writes an applied decision about one document. */
export function conclude<T>(decision: Decision<T>, set: (next: T) => void, about: About): CommandOutcome {
  if (decision.kind === 'applied') set(decision.next);
  const reason = decision.kind === 'applied' ? decision.what : decision.reason;
  return {outcome: decision.kind, reason, about};
}
