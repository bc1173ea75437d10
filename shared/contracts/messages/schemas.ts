/** Schemas of all input: control messages, topic messages, events, shard metadata and worker requests. */
import {z} from 'zod';
import {
  MAX_LEASE_EPOCH,
  MAX_ORDINAL,
  MAX_SHARD_SAMPLES,
  MAX_SHARD_TOKENS,
  MAX_STREAM_SAMPLES,
  MAX_STREAM_TOKENS,
} from '../../domain/bounds.ts';
import {MOST_NAME_CHARS, RUN, WORKER, ZONE} from '../../domain/names.ts';
import {REPORTED_CAUSES} from '../../domain/records/causes.ts';
import {ran, sourceReport, wellFormed} from '../../domain/records/source.ts';
import {Rejected} from '../errors.ts';
import {printable} from '../printable.ts';
import {jobId, jobLease} from './job-schemas.ts';
import {reasonsOf} from './rejection-reasons.ts';

export const runId = z
  .string()
  .regex(RUN, 'a run id: 1 to 39 lower-case letters, digits and dashes, starting with a letter');
export const workerNameText = z
  .string()
  .max(MOST_NAME_CHARS)
  .regex(WORKER, 'a worker name such as tpu-us-central1-a-0')
  .describe('Name of the TPU.');
export const streamText = z
  .string()
  .regex(/^\d{3,9}$/, 'expected 3 to 9 digits such as 007')
  .describe('Id of a stream, such as `007`.');
const upTo = (most: number) => z.number().int().min(0).max(most);
const digest = z.string().regex(/^[0-9a-f]{64}$/, 'expected 64 hexadecimal digits');
const digits = z.string().regex(/^\d{1,19}$/, 'expected 1 to 19 digits');

/** Text that may be empty, without lone surrogates, which JSON and error messages may contain and documents may not. */
const anyText = (most: number) =>
  z
    .string()
    .max(most)
    .transform(given => given.toWellFormed());
/** Longest result in a request, in UTF-16 units, of which a text never has more than bytes of UTF-8. */
const MAX_RESULT_CHARS = 262_144;

const said = (most: number) => wellFormed(most).transform(printable);

function printableText(most: number) {
  return z.string().regex(new RegExp(`^[\\x21-\\x7e]{1,${most}}$`), `1 to ${most} visible characters`);
}

export const version = z.number().int().min(0).describe('Applies only while the document has this version.');
export const zones = z
  .array(z.string().max(MOST_NAME_CHARS).regex(ZONE, 'a zone such as us-central1-a'))
  .min(1)
  .max(50)
  .refine(names => new Set(names).size === names.length, 'each zone once')
  .meta({uniqueItems: true});
export const withSomeOf = <T extends z.ZodObject>(schema: T, ...keys: string[]) =>
  schema
    .refine(message => keys.some(key => message[key] !== undefined), `say what to change: ${keys.join(', ')}`)
    .meta({anyOf: keys.map(key => ({required: [key]}))});

/**
 * Messages on topic `tpu`: the request and the incarnation; everything else is in the worker's document.
 * Unknown keys of messages between machines are ignored, because during a deployment the next release may send more keys.
 */
export const tpuMessage = z.object({
  action: z.enum(['create', 'delete']),
  worker: workerNameText,
  incarnation: upTo(MAX_ORDINAL),
});

/** Messages on topic `tasks`: long work that `tasks/{id}` describes, objects that worker-api found in a stream's folder, or a moved checkpoint. */
export const taskMessage = z.discriminatedUnion('task', [
  z.object({
    task: z.enum(['register', 'rebuild', 'resync', 'finish', 'delete', 'prices', 'expire', 'notify']),
    run: runId.optional(),
  }),
  z.object({task: z.literal('audit'), run: runId, stream: streamText, object: said(1024).nullable()}),
  z.object({task: z.literal('sweep'), job: jobId}),
]);

export type TaskMessage = z.infer<typeof taskMessage>;

const whole = (least: number, most: number) =>
  digits
    .transform(Number)
    .refine(number => number >= least && number <= most, `expected a whole number from ${least} to ${most}`);
/** Custom metadata of a shard: strings, because Cloud Storage stores no other type. */
export const shardMetadata = z.object({
  schema: z.literal('gleaner/1'),
  run: runId,
  stream: streamText,
  shard: whole(1, MAX_ORDINAL),
  epoch: whole(1, MAX_LEASE_EPOCH),
  first_sample: whole(0, MAX_STREAM_SAMPLES),
  last_sample: whole(0, MAX_STREAM_SAMPLES),
  samples: whole(0, MAX_SHARD_SAMPLES),
  rejected: whole(0, MAX_SHARD_SAMPLES),
  tokens: whole(0, MAX_SHARD_TOKENS),
  spec_hash: digest,
  stream_crc32c: z.string().regex(/^[A-Za-z0-9+/=]{1,16}$/, 'expected a crc32c in base64'),
  sha256: digest,
  proof: digest.nullable().default(null),
  final: z.enum(['true', 'false']).transform(text => text === 'true'),
});

const lease = z.object({run: runId, stream: streamText, epoch: upTo(MAX_LEASE_EPOCH)});
const progress = z.object({
  samples_done: upTo(MAX_STREAM_SAMPLES),
  samples_total: upTo(MAX_STREAM_SAMPLES).nullable(),
  tokens_done: upTo(MAX_STREAM_TOKENS),
  shards_done: upTo(MAX_ORDINAL),
  tokens_per_s: z.number().min(0).max(MAX_STREAM_TOKENS).nullable(),
  /** The host that the work waits for, its error, and the number of tries. */
  waits_for: anyText(400).nullable().default(null),
});
/** Bytes that a host has downloaded since its boot. */
const bytes = upTo(Number.MAX_SAFE_INTEGER);
const received = z.object({nat_bytes: bytes, bucket_bytes: bytes, other_bytes: bytes});
const sender = {worker: workerNameText, incarnation: upTo(MAX_ORDINAL), host: upTo(MAX_ORDINAL)};
const by = <Action extends string>(action: Action) => ({action: z.literal(action), ...sender});

/** An object that already exists with bytes other than those the worker made. */
const contradiction = z
  .object({object: said(1024), found: said(200), made: said(200)})
  .nullable()
  .default(null);

export const workerRequest = z.discriminatedUnion('action', [
  // The tick checks that worker-api works.
  z.object({action: z.literal('ping')}),
  // The first request of a host: binds its secret to its incarnation.
  z.object({
    ...by('hello'),
    ticket: z.string().regex(/^[A-Za-z0-9_-]{43}$/, 'expected the ticket of the node, 43 characters'),
    hostname: printableText(253).optional(),
    address: printableText(45).optional(),
  }),
  z.object({
    ...by('lease'),
    loaded: z.object({model: z.string().max(1024), spec_hash: z.string().max(64)}).nullable(),
  }),
  z.object({
    ...by('heartbeat'),
    phase: z.enum(['setup', 'idle', 'loading', 'compiling', 'running', 'waiting', 'ended', 'uploading']),
    // Step of the boot, in phase setup.
    step: printableText(40).optional(),
    lease: z.union([lease, jobLease]).nullable(),
    progress: progress.nullable(),
    source_report: sourceReport.nullable().optional(),
    received: received.optional(),
  }),
  // The boot of the host has failed.
  z.object({...by('setup-failed'), reason: said(4000)}),
  // The end of an attempt of a job.
  z.object({
    ...by('finish'),
    lease: jobLease,
    outcome: z.enum(['completed', 'failed', 'preempted', 'drained']),
    cause: z.enum(REPORTED_CAUSES).nullable(),
    error: anyText(20_000).nullable(),
    exit_code: z.number().int().min(-1000).max(1000).nullable(),
    result: anyText(MAX_RESULT_CHARS).nullable(),
    /** Name of the object with a longer result, in the folder of the attempt. */
    result_object: z.string().max(1024).nullable(),
    has_artifacts: z.boolean(),
    ran: ran.nullable(),
    contradiction,
  }),
  // A version of the checkpoint of a job that the host has stored, or why it stores none.
  z.object({
    ...by('checkpoint'),
    lease: jobLease,
    version: z
      .object({
        version: upTo(MAX_ORDINAL),
        digest,
        label: anyText(200).nullable(),
        ...{bytes, files: bytes, objects: bytes, from_ms: bytes, until_ms: bytes},
        is_new: z.boolean(),
      })
      .nullable(),
    problem: anyText(1000).nullable(),
  }),
  // An access token for the objects of a lease or of a command; without either, for the log of the incarnation and for code.
  z.object({
    ...by('token'),
    lease: z.union([lease, jobLease, z.object({exec: jobId})]).nullable(),
    /** `job`: for the process of the job, in place of its agent. */
    for: z.enum(['agent', 'job']).default('agent'),
  }),
  // Secrets of the job of a lease, the hub's token for a stream; without a lease, git's token.
  z.object({...by('secrets'), lease: z.union([lease, jobLease]).nullable()}),
  // The source and environment of the worker's pool.
  z.object(by('source')),
  // A command that the heartbeat named, then its end on this host.
  z.object({...by('exec'), exec: jobId}),
  z.object({
    ...by('exec-end'),
    exec: jobId,
    outcome: z.enum(['exited', 'timeout', 'refused']),
    exit_code: z.number().int().min(-1000).max(1000).nullable(),
    error: anyText(20_000).nullable(),
  }),
  z
    .object({
      ...by('release'),
      lease,
      outcome: z.enum(['completed', 'drained', 'preempted', 'failed']),
      failure: z
        .object({
          kind: z.enum(['stream', 'model', 'hub', 'infrastructure']),
          reason: anyText(20_000),
          contradiction,
        })
        .nullable(),
      progress: progress.nullable().optional(),
    })
    .refine(({outcome, failure}) => outcome === 'failed' || failure === null, {
      path: ['failure'],
      message: 'expected null, because the outcome is not failed',
    }),
]);

export type WorkerRequest = z.infer<typeof workerRequest>;

/** Parses text as JSON and then as `schema`. Throws `Rejected`, which names each wrong key and its expected value. */
export function parseJson<T>(schema: z.ZodType<T>, text: string, what: string): T {
  let value: unknown;
  try {
    // Some editors start a file with a byte order mark.
    value = JSON.parse(text.replace(/^\ufeff/, ''));
  } catch (error) {
    throw new Rejected(`${what} is not JSON: ${(error as Error).message}`, {cause: error});
  }
  if (isDeeperThan(MOST_NESTED, value)) throw new Rejected(`${what} is nested deeper than ${MOST_NESTED}`);
  return parseValue(schema, value, what);
}

/** More deeply nested values would overflow the stack of the code that writes them again. */
const MOST_NESTED = 100;

function isDeeperThan(depth: number, value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return depth === 0 || Object.values(value).some(inner => isDeeperThan(depth - 1, inner));
}

export function parseValue<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new Rejected(`${what} is not valid: ${reasonsOf(parsed.error, value).join('; ')}`, {
    cause: parsed.error,
  });
}
