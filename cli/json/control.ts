/** Answers of commands that publish one message. */
import {z} from 'zod';

/** The effect of an applied message, or the command of gcloud that `--dry-run` prints. */
export const sent = z.union([z.strictObject({done: z.string()}), z.strictObject({command: z.string()})]);

export const controlAnswers = {
  'jobs cancel': sent,
  'jobs retry': sent,
  'jobs clear': sent,
  'pool create': sent,
  scale: sent,
};
