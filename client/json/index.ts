/**
 * Schemas of the answers of `--json`, by command. A failed command prints `{"error": TEXT}` in place of the answer, and exits with 1 or 2.
 * `npm run docs` writes them to `dist/output.schema.json`.
 */
import {z} from 'zod';
import {cloudAnswers} from './clouds.ts';
import {controlAnswers} from './control.ts';
import {text} from './fields.ts';
import {jobAnswers} from './jobs.ts';
import {poolAnswers} from './pools.ts';
import {runAnswers} from './runs.ts';
import {streamAnswers} from './streams.ts';
import {tpuAnswers} from './tpus.ts';

const schemas = {
  ...cloudAnswers,
  ...controlAnswers,
  ...runAnswers,
  ...streamAnswers,
  ...poolAnswers,
  ...jobAnswers,
  ...tpuAnswers,
  failure: z.strictObject({error: z.string()}),
};

/** The answer of each command with `--json`, such as `run start`, and `failure` of a command that failed. */
export type Answers = {[Words in keyof typeof schemas]: z.infer<(typeof schemas)[Words]>};

/** A command that changes a cloud also names it. */
function withCloud(schema: z.ZodType): z.ZodType {
  if (schema instanceof z.ZodUnion) return z.union(schema.options.map(each => withCloud(each as z.ZodType)));
  return schema instanceof z.ZodObject ? schema.extend({cloud: text.optional()}) : schema;
}

const {failure: failed, ...others} = schemas;
export const failure = withCloud(failed);
export const answers: Readonly<Record<string, z.ZodType>> = Object.fromEntries(
  Object.entries(others).map(([words, schema]) => [words, withCloud(schema)]),
);
