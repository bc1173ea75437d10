import {readFileSync} from 'node:fs';
import {z} from 'zod';
import {LocalCloudError} from '../http/errors.ts';

const trigger = z.discriminatedUnion('kind', [
  z.object({kind: z.literal('topic'), topic: z.string().min(1)}),
  z.object({kind: z.literal('http')}),
  /** A new document of Firestore, in a collection at the root of the database. */
  z.object({kind: z.literal('document'), event: z.literal('created'), collection: z.string().min(1)}),
]);
const entry = z.object({
  name: z.string().min(1),
  trigger,
  /** Seconds after which Cloud Run ends a request. */
  timeout_s: z.number().positive().default(60),
});
/** Notification of Cloud Storage: a message on `topic` for each event at an object with one of the prefixes. */
const notification = z.object({
  topic: z.string().min(1),
  event: z.literal('OBJECT_FINALIZE'),
  prefixes: z.array(z.string()).min(1),
});
const file = z.object({functions: z.array(entry), notifications: z.array(notification).default([])});

export type Triggers = z.infer<typeof file>;
export type FunctionTrigger = Triggers['functions'][number];

/** Names of the functions that answer HTTP requests. */
export function httpFunctions(functions: FunctionTrigger[]): string[] {
  return functions.filter(({trigger}) => trigger.kind === 'http').map(({name}) => name);
}

/** Reads the trigger of each function, and the notifications. Terraform reads the same file for the real cloud. */
export function readTriggers(path: string): Triggers {
  try {
    return file.parse(JSON.parse(readFileSync(path, 'utf8')));
  } catch (error) {
    const reason = (error as Error).message;
    throw new LocalCloudError('bad-triggers', `Failed to read the triggers in ${path}: ${reason}`, {
      cause: error,
    });
  }
}
