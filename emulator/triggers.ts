import {readFileSync} from 'node:fs';
import {z} from 'zod';
import {LocalCloudError} from './errors.ts';

const trigger = z.discriminatedUnion('kind', [
  z.object({kind: z.literal('object-finalized')}),
  z.object({kind: z.literal('topic'), topic: z.string().min(1)}),
  z.object({kind: z.literal('http')}),
]);
const entry = z.object({
  name: z.string().min(1),
  trigger,
  /** Seconds until a delivery without an answer is repeated. */
  timeout_s: z.number().positive().default(60),
});
const file = z.object({functions: z.array(entry)});

export type FunctionTrigger = z.infer<typeof file>['functions'][number];

/** Reads the trigger of each function. Terraform reads the same file for the real cloud. */
export function readTriggers(path: string): FunctionTrigger[] {
  try {
    return file.parse(JSON.parse(readFileSync(path, 'utf8'))).functions;
  } catch (error) {
    throw new LocalCloudError(
      'bad-triggers',
      `Failed to read the triggers in ${path}: ${(error as Error).message}`,
      {
        cause: error,
      },
    );
  }
}

export function topicsOf(triggers: FunctionTrigger[]): string[] {
  return [...new Set(triggers.flatMap(({trigger: on}) => (on.kind === 'topic' ? [on.topic] : [])))];
}
