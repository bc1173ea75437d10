/** Kinds of stored documents by their paths. */
import type {z} from 'zod';
import {STORED_SCHEMAS} from '../../cli/build/reference/stored-schemas.ts';

/** The schema of the document at a path. `prices/chips` has no schema: each of its entries is a price. */
export function schemaAt(path: string): z.ZodType | undefined {
  const title = Object.keys(STORED_SCHEMAS).find(each => isOfKind(path, /`([^`]+)`/.exec(each)?.[1] ?? ''));
  return title === undefined ? undefined : STORED_SCHEMAS[title];
}

/** `runs/RUN/streams/STREAM` is the kind of `runs/my-run/streams/000`. */
export function isOfKind(path: string, kind: string): boolean {
  return new RegExp(`^${kind.replace(/[A-Z_.]*[A-Z]/g, '[^/]+')}$`).test(path);
}
