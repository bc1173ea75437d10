/** Answers of the commands about streams. */
import {z} from 'zod';

const count = z.number().int().min(0);

export const streamAnswers = {
  'streams create': z.strictObject({
    status: z.enum(['created', 'complete', 'planned']),
    folder: z.string(),
    samples: count,
    bytes: count,
    streams: z.array(z.strictObject({file: z.string(), samples: count})),
    seconds: z.number(),
  }),
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
