/** Answers of the commands about streams and models. */
import {z} from 'zod';
import {commands, count, text} from './fields.ts';

export const streamAnswers = {
  'streams create': z.strictObject({
    status: z.enum(['created', 'complete', 'planned']),
    folder: text,
    samples: count,
    bytes: count,
    streams: z.array(z.strictObject({file: text, samples: count})),
    seconds: z.number(),
    /** Columns of the sources that no record has. Null: no row was read. */
    left_out: z.array(text).nullable(),
  }),
  'streams upload': z.union([
    z.strictObject({
      run: text,
      bucket: text,
      prefix: text,
      spec: z.enum(['uploaded', 'already there']).nullable(),
      ...{streams: count, uploaded: count, already_there: count, bytes: count, uploaded_bytes: count},
      seconds: z.number(),
    }),
    commands,
  ]),
  'models mirror': z.strictObject({
    model: text,
    commit: text,
    /** The model of a run: `gs://BUCKET/models/ORG/NAME@COMMIT`. */
    address: text,
    files: count,
    bytes: count,
    /** Bytes of this command. The others were there. */
    copied_bytes: count,
  }),
};
