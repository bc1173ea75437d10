/** Values of the fields of answers. */
import {z} from 'zod';

export const text = z.string();
export const maybe = text.nullable();
export const count = z.number().int().min(0);
export const dollars = z.number();
/** Commands of gcloud, as `--dry-run` prints them. */
export const commands = z.strictObject({commands: z.array(text)});
