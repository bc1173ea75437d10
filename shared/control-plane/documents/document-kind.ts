import type {z} from 'zod';
import {Rejected} from '../../contracts/errors.ts';
import type {Document, Store, Stored, Transaction} from '../../ports.ts';

/**
 * Reads and writes documents of one schema. Every document is also parsed before its write, because an invalid document would stop
 * its run until an operator deletes it.
 */
export function recordsOf<T extends object>(schema: z.ZodType<T>) {
  const parse = (path: string, data: Document): T => {
    const parsed = schema.safeParse(data);
    if (parsed.success) return parsed.data;
    throw new Rejected(
      `Failed to read ${path}: ${firstOf(parsed.error)}. An operator edited this document: mend the field or delete the document`,
      {cause: parsed.error},
    );
  };
  return {
    schema,
    get: async (from: Store | Transaction, path: string): Promise<T | undefined> => {
      const data = await from.get(path);
      return data && parse(path, data);
    },
    parse,
    /** Returns the valid documents. An invalid document goes to `onInvalid`, and stops no other document. */
    parseAll: (stored: Stored[], onInvalid: (error: Rejected, id: string) => void): T[] =>
      stored.flatMap(({path, id, data}) => {
        try {
          return [parse(path, data)];
        } catch (error) {
          if (!(error instanceof Rejected)) throw error;
          onInvalid(error, id);
          return [];
        }
      }),
    /** Writes a valid document. An invalid document throws, and the transaction changes nothing. */
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

/** Writes a document that an edit has made invalid. It stays invalid until a person mends it. */
export function setInvalid(tx: Transaction, path: string, data: Document): void {
  tx.set(path, data);
}

function firstOf({issues}: z.ZodError): string {
  const [issue] = issues;
  return `${issue?.path.join('.')}: ${issue?.message}`;
}
