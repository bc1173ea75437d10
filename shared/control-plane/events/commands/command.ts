/** A row of the table of commands: schema, preparation, decision and after-effects of a message. */
import type {z} from 'zod';
import type {Decision} from '../../../domain/commands/commands.ts';
import type {DecisionContext, Deps} from '../../deps.ts';

export type About = {run?: string; stream?: string; worker?: string; pool?: string; job?: string};
export type Awaitable<T> = T | Promise<T>;
export type CommandOutcome = {outcome: 'applied' | 'rejected'; reason: string; about: About};
/** The transaction of a message. `published_at` is the publish time, which orders messages. */
export type MessageTurn = DecisionContext & {published_at: string};

export type Command<Schema extends z.ZodObject> = {
  schema: Schema;
  /** Creates the documents that the decision reads. Safe to repeat. */
  prepare?: (deps: Deps, message: z.infer<Schema>) => Promise<void>;
  /** Reads, decides and writes in the transaction that also records the message. */
  decide: (turn: MessageTurn, message: z.infer<Schema>) => Promise<CommandOutcome>;
  /** Runs after an applied decision. Safe to repeat. */
  after?: (deps: Deps, message: z.infer<Schema>) => Promise<void>;
};

/** Keeps the type of the schema for the functions of the row. */
export function command<Schema extends z.ZodObject>(row: Command<Schema>): Command<Schema> {
  return row;
}

export function conclude<T>(decision: Decision<T>, set: (next: T) => void, about: About): CommandOutcome {
  if (decision.kind === 'applied') set(decision.next);
  return {outcome: decision.kind, reason: reasonOf(decision), about};
}

function reasonOf(decision: Decision<unknown>): string {
  return decision.kind === 'applied' ? decision.what : decision.reason;
}

/** Most documents that the recorded reason of a message names. */
const MOST_NAMED = 20;

export function refused(reason: string, about: About): CommandOutcome {
  return {outcome: 'rejected', reason, about};
}

/** The reasons of decisions about many documents. `further`: what to do about documents beyond these. */
export function reasonsOf(decisions: readonly Decision<unknown>[], further: string | undefined): string {
  const more = decisions.length - MOST_NAMED;
  const named = decisions.slice(0, MOST_NAMED).map(reasonOf);
  return [...named, ...(more > 0 ? [`and ${more} more`] : []), ...(further ? [further] : [])].join('; ');
}
