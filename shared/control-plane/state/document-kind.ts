import type {z} from 'zod';
import {Rejected} from '../../contracts/errors.ts';
import type {Document, Store, Stored, Transaction} from '../../ports.ts';

/**
 * One kind of document: reads it alone, in a transaction and many at a time, and writes it. Every document is parsed before it is
 * written too: a document that no reader accepts would stop its run until a person deletes it.
 */
export function kind<T extends object>(schema: z.ZodType<T>) {
  const parse = (path: string, data: Document): T => {
    const parsed = schema.safeParse(data);
    if (parsed.success) return parsed.data;
    throw new Rejected(
      `Failed to read ${path}: ${firstOf(parsed.error)}. A person edited this document: mend the field or delete the document`,
      {cause: parsed.error},
    );
  };
  return {
    get: async (from: Store | Transaction, path: string): Promise<T | undefined> => {
      const data = await from.get(path);
      return data && parse(path, data);
    },
    parse,
    /** The documents that can be read; each other one goes to `onBroken`, so that it stops none of the rest. */
    parseAll: (stored: Stored[], onBroken: (error: Rejected, id: string) => void): T[] =>
      stored.flatMap(({path, id, data}) => {
        try {
          return [parse(path, data)];
        } catch (error) {
          if (!(error instanceof Rejected)) throw error;
          onBroken(error, id);
          return [];
        }
      }),
    /** Throws before anything is written: the transaction changes nothing. */
    set: (tx: Transaction, path: string, value: T): void => {
      const parsed = schema.safeParse(value);
      if (!parsed.success)
        throw new Error(
          `Refused to write ${path}: ${firstOf(parsed.error)}. No reader accepts it; the transaction changes nothing`,
          {cause: parsed.error},
        );
      tx.set(path, value as unknown as Document);
    },
  };
}

function firstOf({issues}: z.ZodError): string {
  const [issue] = issues;
  return `${issue?.path.join('.')}: ${issue?.message}`;
}
