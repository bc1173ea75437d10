/** Answers of the commands about streams. */
import {z} from 'zod';

const count = z.number().int().min(0);

export const streamAnswers = {
  'streams upload': z.union([
    z.strictObject({
      run: z.string(),
      bucket: z.string(),
      prefix: z.string(),
      spec: z.enum(['uploaded', 'already there']).nullable(),
      streams: count,
      uploaded: count,
      already_there: count,
      bytes: count,
      uploaded_bytes: count,
      seconds: z.number(),
    }),
    z.strictObject({commands: z.array(z.string())}),
  ]),
};
