/**
 * Fields of stored documents, apart from those of input. Unknown keys are kept at every depth, and words that only describe are text: a
 * newer release writes the same documents. After the first release a new field has a `default`, because its documents lack the field.
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

/** An object that keeps its unknown keys. They have no type. */
export function stored<Shape extends z.ZodRawShape>(shape: Shape): z.ZodObject<Shape> {
  return z.looseObject(shape) as unknown as z.ZodObject<Shape>;
}

/** Words that only describe: a word of a newer release is kept. */
export function describing<const Word extends string>(words: readonly Word[]): z.ZodType<Word> {
  return z.enum(words).or(z.string()) as z.ZodType<unknown> as z.ZodType<Word>;
}

/** An object that no decision looks into. It is kept as it is. */
export function kept<T>(): z.ZodType<T> {
  return z.record(z.string(), z.unknown()) as z.ZodType<unknown> as z.ZodType<T>;
}

/** The value of each field that says nothing: null where the field allows it, and else 0, false, or no entry. */
export function emptyOf<Shape extends z.ZodRawShape>(shape: Shape): z.infer<z.ZodObject<Shape>> {
  const emptyFor = (field: z.core.$ZodType) =>
    [null, 0, false, {}, []].find(value => z.safeParse(field, value).success);
  const fields = Object.entries(shape).map(([name, field]) => [name, emptyFor(field)]);
  return Object.fromEntries(fields) as z.infer<z.ZodObject<Shape>>;
}
