/**
 * Schemas of the answers of `--json`, by command. A failed command prints `{"error": TEXT}` in place of the answer, and exits with 1 or 2.
 * `docs/output.schema.json` is generated from these schemas.
 */
import {z} from 'zod';
import {cloudAnswers} from './clouds.ts';
import {controlAnswers} from './control.ts';
import {hostAnswers} from './hosts.ts';
import {jobAnswers} from './jobs.ts';
import {runAnswers} from './runs.ts';
import {streamAnswers} from './streams.ts';
import {tpuAnswers} from './tpus.ts';

export const failure = z.strictObject({error: z.string()});

/** Schema of the answer of each command with `--json`, such as `run start`. */
export const answers: Readonly<Record<string, z.ZodType>> = {
  ...cloudAnswers,
  ...controlAnswers,
  ...runAnswers,
  ...streamAnswers,
  ...hostAnswers,
  ...jobAnswers,
  ...tpuAnswers,
};
