/** Answers of `gleaner jobs …`. People write documents of jobs, so a job may have any further field. */
import {z} from 'zod';
import {count, text} from './fields.ts';

/** A document of a job with its id. docs/jobs.md names the fields. */
const job = z.looseObject({id: text});

const ended = z.strictObject({
  job: z.unknown().optional(),
  status: z.unknown().optional(),
  result: z.unknown().optional(),
  exit_code: z.unknown().optional(),
});

export const jobAnswers = {
  'jobs show': job,
  'jobs list': z.array(job),
  'jobs get': z.strictObject({id: text, result: z.unknown(), result_path: z.unknown()}),
  'jobs cp': z.strictObject({
    ...{folder: text, attempt: count, files: count, written: count, bytes: count},
    left_out: z.array(z.strictObject({name: text, reason: text})),
  }),
  'jobs submit': z.union([
    z.strictObject({id: text}),
    z.strictObject({id: text, commands: z.array(text)}),
    z.strictObject({same: z.boolean(), differs: z.array(text), runs: z.array(ended)}),
  ]),
};
