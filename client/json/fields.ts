/** Values of the fields of answers, and the row of a listed thing. */
import {z} from 'zod';

export const text = z.string();
export const maybe = text.nullable();
export const count = z.number().int().min(0);
export const dollars = z.number();
/** A text of a document that people may edit: null for any other value. */
export const textOrNull = maybe.default(null).catch(null);
/** Commands of gcloud, as `--dry-run` prints them. */
export const commands = z.strictObject({commands: z.array(text)});

/** The fields that the schema of a listed thing names, in its order: of a document, and of what is computed beside it. */
export function rowOf<Schema extends z.ZodObject>(schema: Schema, values: z.input<Schema>): z.output<Schema> {
  return schema.strip().parse(values) as z.output<Schema>;
}
