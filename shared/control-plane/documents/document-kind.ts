import {z} from 'zod';
import {NotUnderstood, Rejected} from '../../contracts/errors.ts';
import {reasonsOf} from '../../contracts/messages/rejection-reasons.ts';
import {RELEASE} from '../../contracts/settings/config.ts';
import type {News} from '../../domain/notices/notice.ts';
import type {Document, Store, Stored, Transaction} from '../../ports/ports.ts';
import type {Log} from '../calls/log.ts';

export const LEFT_ALONE = {signal: 'document-left-alone'} as const;

export function leftAlone(log: Log): (error: Rejected) => void {
  return error => log('ERROR', error.message, error instanceof NotUnderstood ? LEFT_ALONE : {});
}

/** Does one part of larger work. A document that is not understood raises an alert and does not stop other parts. */
export async function skipIfInvalid<T>(log: Log, part: () => Promise<T>): Promise<T | undefined> {
  try {
    return await part();
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    leftAlone(log)(error);
    return undefined;
  }
}

/** Paths that a transaction has read and not understood. It must not write them. */
const notUnderstood = new WeakMap<Store | Transaction, Set<string>>();

type NewsOf<T> = (before: T | undefined, after: T) => News[];
const tellers = new WeakMap<Transaction, (news: News) => void>();

/** Reports the changes in a transaction of which people are notified. */
export function onNews(tx: Transaction, tell: (news: News) => void): void {
  tellers.set(tx, tell);
}

/**
 * Reads and writes documents of one schema. A document with a field that the schema does not understand throws `NotUnderstood`, because a
 * newer release or a person wrote it; the transaction that has read it cannot replace it. Every write is checked. It also records this
 * release, unless the keys of the document are names of its own.
 */
export function recordsOf<T extends object>(schema: z.ZodType<T>, isNamed = true, newsOf?: NewsOf<T>) {
  /** A version of a document is an immutable object, so it is parsed once. */
  const understood = new WeakMap<Document, T>();
  /** Documents as each transaction has read them; a write checks only the fields that differ. */
  const read = new WeakMap<Store | Transaction, Map<string, T>>();
  const parse = (path: string, data: Document): T => {
    const known = understood.get(data);
    if (known) return known;
    const parsed = schema.safeParse(data);
    if (!parsed.success) throw new NotUnderstood(path, firstOf(parsed.error, data), data);
    understood.set(data, parsed.data);
    return parsed.data;
  };
  return {
    schema,
    get: async (from: Store | Transaction, path: string): Promise<T | undefined> => {
      const data = await from.get(path);
      const alone = notUnderstood.get(from) ?? new Set();
      notUnderstood.set(from, alone.add(path));
      const value = data && parse(path, data);
      alone.delete(path);
      if (value && 'set' in from) read.set(from, (read.get(from) ?? new Map()).set(path, value));
      return value;
    },
    parse,
    /** Returns the documents that are understood. The others go to `onOther` and do not affect the rest. */
    parseAll: (stored: Stored[], onOther: (error: NotUnderstood, id: string) => void): T[] =>
      stored.flatMap(({path, id, data}) => {
        try {
          return [parse(path, data)];
        } catch (error) {
          if (!(error instanceof NotUnderstood)) throw error;
          onOther(error, id);
          return [];
        }
      }),
    /** Writes a valid document. An invalid document throws, and the transaction changes nothing. */
    set: (tx: Transaction, path: string, value: T): void => {
      if (notUnderstood.get(tx)?.has(path)) return;
      const parsed = withChanges(schema, read.get(tx)?.get(path), value) ?? parseToWrite(schema, path, value);
      const named = isNamed ? {release: RELEASE} : {};
      const data = {...value, ...named} as unknown as Document;
      understood.set(data, parsed === value ? (data as unknown as T) : {...parsed, ...named});
      const tell = newsOf && tellers.get(tx);
      if (tell) newsOf(read.get(tx)?.get(path), parsed).forEach(tell);
      read.get(tx)?.set(path, parsed);
      tx.set(path, data);
    },
  };
}

function parseToWrite<T extends object>(schema: z.ZodType<T>, path: string, value: T): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new Error(
    `Refused to write ${path}: ${firstOf(parsed.error, value)}. No reader would accept it; the transaction changes nothing`,
    {cause: parsed.error},
  );
}

/**
 * The value with those fields parsed that differ from a parsed one, or the value itself if parsing changes nothing. Undefined if a field is
 * invalid or missing, or the schema checks more than fields.
 */
function withChanges<T extends object>(schema: z.ZodType<T>, before: T | undefined, value: T): T | undefined {
  if (!before || !(schema instanceof z.ZodObject) || schema.def.checks?.length) return undefined;
  const known = before as Record<string, unknown>;
  const given = value as Record<string, unknown>;
  let changed: Record<string, unknown> | undefined;
  for (const key in known) if (given[key] === undefined) return undefined;
  for (const key in given) {
    if (given[key] === known[key]) continue;
    const parsed = (schema.shape[key] as z.ZodType | undefined)?.safeParse(given[key]);
    if (parsed?.success === false) return undefined;
    if (parsed && parsed.data !== given[key]) changed = {...changed, [key]: parsed.data};
  }
  return changed ? {...value, ...changed} : value;
}

/** Reads and writes the documents of one schema at their paths, which come from ids or from the fields of a document. */
export function recordsAt<T extends object, Ids extends unknown[]>(
  schema: z.ZodType<T>,
  pathOf: (...ids: Ids) => string,
  pathIn: (value: T) => string,
  newsOf?: NewsOf<T>,
) {
  const records = recordsOf(schema, true, newsOf);
  const get = (from: Store | Transaction, ...ids: Ids) => records.get(from, pathOf(...ids));
  return {
    ...records,
    get,
    /** A document that is not understood raises an alert and returns undefined. */
    read: (log: Log, from: Store | Transaction, ...ids: Ids) => skipIfInvalid(log, () => get(from, ...ids)),
    set: (tx: Transaction, value: T) => records.set(tx, pathIn(value), value),
    /** Changes a document in a transaction of its own, then runs `also` in it. Does neither if `decide` returns undefined. */
    change: (
      store: Store,
      ids: Ids,
      decide: (current: T) => T | undefined,
      also: (tx: Transaction, next: T) => void = () => {},
    ): Promise<void> =>
      store.transaction(async tx => {
        const current = await get(tx, ...ids);
        const next = current && decide(current);
        if (!next) return;
        records.set(tx, pathIn(next), next);
        also(tx, next);
      }),
  };
}

function firstOf(error: z.ZodError, value: object): string {
  const [reason = error.message] = reasonsOf(error, value);
  return reason;
}
