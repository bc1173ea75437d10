/** Answers of commands that publish one message. */
import {z} from 'zod';
import {text} from './fields.ts';

/** The effect of an applied message, or the command of gcloud that `--dry-run` prints. */
const sent = z.union([z.strictObject({done: text}), z.strictObject({command: text})]);

export const controlAnswers = {
  'jobs cancel': sent,
  'jobs retry': sent,
  'jobs clear': sent,
  'pool create': sent,
  'pool keep': sent,
  'pool pause': sent,
  'pool resume': sent,
  'pool delete': sent,
  'run pause': sent,
  'run resume': sent,
  'run stop': sent,
  'run retry': sent,
  'run cancel': sent,
  'run configure': sent,
  scale: sent,
};

export type Sending = keyof typeof controlAnswers;
