/**
 * Fields of stored documents. Unknown keys are kept at every depth, and descriptive words are plain text, because a newer release writes the
 * same documents. A field added after the first release needs a `default`, because older documents lack it.
 */
import {z} from 'zod';
import {MAX_LEASE_EPOCH, MAX_ORDINAL} from './bounds.ts';

export const text = z.string();
export const integer = z.number().int();
export const count = integer.min(0);
export const amount = z.number().min(0);
export const dollars = z.number();
export const instant = z.iso.datetime();
export const epoch = count.max(MAX_LEASE_EPOCH);
export const incarnation = count.max(MAX_ORDINAL);
export const message_times = z
  .record(text, instant)
  .describe(
    'Publish time of the last message about each field: `status_at` for `status`. An older message that arrives late changes nothing.',
  );

export const orNull = <Field extends z.ZodType>(field: Field): z.ZodNullable<Field> => z.nullable(field);

/** An object that keeps its unknown keys, which have no type. */
export function stored<Shape extends z.ZodRawShape>(shape: Shape): z.ZodObject<Shape> {
  return z.looseObject(shape) as unknown as z.ZodObject<Shape>;
}

/** Words that no decision uses, so a word of a newer release is accepted. */
export function describing<const Word extends string>(words: readonly Word[]): z.ZodType<Word> {
  return z.enum(words).or(z.string()) as z.ZodType<unknown> as z.ZodType<Word>;
}

/** An object that no decision looks into; it is stored unchanged. */
export function kept<T>(): z.ZodType<T> {
  return z.record(z.string(), z.unknown()) as z.ZodType<unknown> as z.ZodType<T>;
}

/** The empty value of each field: null where the field allows it, else 0, false, or no entry. */
export function emptyOf<Shape extends z.ZodRawShape>(shape: Shape): z.infer<z.ZodObject<Shape>> {
  const emptyFor = (field: z.core.$ZodType) =>
    [null, 0, false, {}, []].find(value => z.safeParse(field, value).success);
  const fields = Object.entries(shape).map(([name, field]) => [name, emptyFor(field)]);
  return Object.fromEntries(fields) as z.infer<z.ZodObject<Shape>>;
}
