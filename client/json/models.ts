/** Answers of the commands about models. */
import {z} from 'zod';
import {count, text} from './fields.ts';

export const modelAnswers = {
  'models mirror': z.strictObject({
    model: text,
    commit: text,
    // The model of a run: `gs://BUCKET/models/ORG/NAME@COMMIT`.
    address: text,
    files: count,
    bytes: count,
    // Bytes of this command. The others were there.
    copied_bytes: count,
  }),
};
