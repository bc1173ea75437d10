/** Answers of the commands about models. */
import {z} from 'zod';
import {count, text} from './fields.ts';

export const modelAnswers = {
  'models mirror': z.strictObject({
    model: text,
    commit: text,
    address: text,
    files: count,
    bytes: count,
    copied_bytes: count,
  }),
};
