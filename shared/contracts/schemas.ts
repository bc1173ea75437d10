/** Everything that comes from outside is parsed here: what people write, what workers send, what objects and documents hold. */
import {z} from 'zod';
import {
  MAX_EPOCH,
  MAX_LEASE_EPOCH,
  MAX_ORDINAL,
  MAX_SHARD_SAMPLES,
  MAX_SHARD_TOKENS,
  MAX_STREAM_SAMPLES,
  MAX_STREAM_TOKENS,
} from '../domain/bounds.ts';
import {MOST_NAME_CHARS, RUN, WORKER, ZONE} from '../domain/names.ts';
import {Rejected} from './errors.ts';

export const runId = z
  .string()
  .regex(RUN, 'a run id: 1 to 39 lower-case letters, digits and dashes, starting with a letter');
export const workerNameText = z
  .string()
  .max(MOST_NAME_CHARS)
  .regex(WORKER, 'a worker name such as tpu-us-central1-a-0');
export const streamText = z.string().regex(/^\d{3,9}$/, 'expected 3 to 9 digits such as 007');
const upTo = (most: number) => z.number().int().min(0).max(most);
const digits = z.string().regex(/^\d{1,19}$/, 'expected 1 to 19 digits');

/** Half a character, which JSON can hold and an error message can quote, is nothing that a document can hold. */
function toWellFormed(text: string): string {
  return text.toWellFormed();
}

export const version = z.number().int().min(0);
export const dollars = z.number().positive().max(10_000_000).nullable();
export const poolName = z.string().regex(/^[a-z][a-z0-9-]{0,30}$/, 'a pool name such as tpu');
export const zones = z
  .array(z.string().max(MOST_NAME_CHARS).regex(ZONE, 'a zone such as us-central1-a'))
  .min(1)
  .max(50)
  .refine(names => new Set(names).size === names.length, 'each zone once')
  .meta({uniqueItems: true});
export const provisioning = z.enum(['node', 'queued-resource', 'auto']);
/** A message with at least one of these keys. */
export const withSomeOf = <T extends z.ZodObject>(schema: T, ...keys: string[]) =>
  schema
    .refine(message => keys.some(key => message[key] !== undefined), `say what to change: ${keys.join(', ')}`)
    .meta({anyOf: keys.map(key => ({required: [key]}))});

/**
 * Topic `tpu`: only what is asked and for which life of which slot; the slot's document says the rest. What machines send is read
 * without what this release does not know: during a deployment the next one sends it too.
 */
export const tpuMessage = z.object({
  action: z.enum(['create', 'delete']),
  worker: workerNameText,
  incarnation: upTo(MAX_ORDINAL),
});

/** Topic `tasks`: long work that the document of the task, or of the run's fold, describes. */
export const taskMessage = z.discriminatedUnion('task', [
  z.object({task: z.literal('finish'), run: runId, cost_usd: z.number().min(0)}),
  z.object({task: z.enum(['register', 'rebuild', 'resync']), run: runId.optional()}),
]);

export type TaskMessage = z.infer<typeof taskMessage>;

/** Cloud Storage's object resource, as far as we read it. */
export const objectEvent = z.object({
  bucket: z.string().min(1).max(256),
  name: z.string().min(1).max(1024),
  generation: z.union([digits, z.number().int()]).transform(String),
});

/** Pub/Sub writes up to nine digits of a second; documents hold milliseconds. */
const publishTime = z.iso
  .datetime({offset: true})
  .transform(text => new Date(text).toISOString())
  .optional()
  .catch(undefined);

/** A Pub/Sub push: the text of the message, '' when it has none, and when it was published, if the push says so. */
export const pubsubEvent = z
  .object({
    message: z.object({
      data: z.string().optional(),
      publishTime,
      attributes: z.record(z.string(), z.string()).optional(),
    }),
  })
  .transform(({message}) => ({
    text: Buffer.from(message.data ?? '', 'base64').toString('utf8'),
    published_at: message.publishTime,
    attributes: message.attributes ?? {},
  }));

const whole = (least: number, most: number) =>
  digits
    .transform(Number)
    .refine(number => number >= least && number <= most, `expected a whole number from ${least} to ${most}`);
/** A shard's custom metadata: strings, because Cloud Storage keeps nothing else. */
export const shardMetadata = z.object({
  schema: z.literal('gleaner/1'),
  run: runId,
  stream: streamText,
  shard: whole(1, MAX_ORDINAL),
  /** Of the lease under which it was stored. */
  epoch: whole(1, MAX_EPOCH),
  first_sample: whole(0, MAX_STREAM_SAMPLES),
  last_sample: whole(0, MAX_STREAM_SAMPLES),
  samples: whole(0, MAX_SHARD_SAMPLES),
  rejected: whole(0, MAX_SHARD_SAMPLES),
  tokens: whole(0, MAX_SHARD_TOKENS),
  spec_hash: z.string().regex(/^[0-9a-f]{64}$/, 'expected 64 hexadecimal digits'),
  stream_crc32c: z.string().regex(/^[A-Za-z0-9+/=]{1,16}$/, 'expected a crc32c in base64'),
  final: z.enum(['true', 'false']).transform(text => text === 'true'),
});

const lease = z.object({run: runId, stream: streamText, epoch: upTo(MAX_LEASE_EPOCH)});
const progress = z.object({
  samples_done: upTo(MAX_STREAM_SAMPLES),
  samples_total: upTo(MAX_STREAM_SAMPLES).nullable(),
  tokens_done: upTo(MAX_STREAM_TOKENS),
  shards_done: upTo(MAX_ORDINAL),
  tokens_per_s: z.number().min(0).max(MAX_STREAM_TOKENS).nullable(),
});
const sender = {worker: workerNameText, incarnation: upTo(MAX_ORDINAL), host: upTo(MAX_ORDINAL)};

export const workerRequest = z.discriminatedUnion('action', [
  // The tick asks whether worker-api works.
  z.object({action: z.literal('ping')}),
  z.object({
    action: z.literal('lease'),
    ...sender,
    loaded: z
      .object({model: z.string().max(1024), spec_hash: z.string().max(64)})
      .nullable()
      .optional(),
  }),
  z.object({
    action: z.literal('heartbeat'),
    ...sender,
    phase: z.enum(['setup', 'idle', 'loading', 'compiling', 'running', 'uploading']),
    lease: lease.nullable(),
    progress: progress.nullable(),
  }),
  z.object({
    action: z.literal('release'),
    ...sender,
    lease,
    outcome: z.enum(['completed', 'drained', 'preempted', 'failed']),
    failure: z
      .object({
        kind: z.enum(['stream', 'model', 'infrastructure']),
        reason: z.string().max(20_000).transform(toWellFormed),
      })
      .nullable(),
    progress: progress.nullable().optional(),
  }),
]);

export type WorkerRequest = z.infer<typeof workerRequest>;

/** Parses text as JSON and then as `schema`; what does not fit is `Rejected`, naming the key and what is expected there. */
export function parseJson<T>(schema: z.ZodType<T>, text: string, what: string): T {
  let value: unknown;
  try {
    // Some editors begin a file with a mark of its encoding.
    value = JSON.parse(text.replace(/^\ufeff/, ''));
  } catch (error) {
    throw new Rejected(`${what} is not JSON: ${(error as Error).message}`, {cause: error});
  }
  if (isDeeperThan(MOST_NESTED, value)) throw new Rejected(`${what} is nested deeper than ${MOST_NESTED}`);
  return parseValue(schema, value, what);
}

/** What is nested deeper, no reader of ours could write again: its stack would end first. */
const MOST_NESTED = 100;

function isDeeperThan(depth: number, value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return depth === 0 || Object.values(value).some(inner => isDeeperThan(depth - 1, inner));
}

export function parseValue<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const problems = onePerMistake(parsed.error.issues.flatMap(whatIsWrong)).map(issue =>
    explain(issue, value),
  );
  throw new Rejected(`${what} is not valid: ${problems.join('; ')}`, {cause: parsed.error});
}

type Issue = z.core.$ZodIssue;

/** Of a choice between kinds of values, what is wrong with the kind that was given, if it is one of them. */
function whatIsWrong(issue: Issue): Issue[] {
  if (issue.code !== 'invalid_union') return [issue];
  const given = issue.errors.find(branch =>
    branch.some(({code, path}) => code !== 'invalid_type' || path.length > 0),
  );
  return given?.map(inner => ({...inner, path: [...issue.path, ...inner.path]})) ?? [issue];
}

/**
 * A value of the wrong kind breaks limits that are of another kind, and a number may break two limits: the last is the nearest.
 * Nothing else is said of what has another schema.
 */
function onePerMistake(issues: Issue[]): Issue[] {
  const foreign = issues.filter(({path}) => path.length === 1 && path[0] === 'schema');
  if (foreign.length > 0) return foreign;
  const isLimit = ({code}: Issue) => code === 'too_big' || code === 'too_small';
  const isNearer = (other: Issue, issue: Issue, isLater: boolean) =>
    other.path.join() === issue.path.join() &&
    (other.code === 'invalid_type' || (isLater && other.code === issue.code));
  return issues.filter(
    (issue, index) =>
      !isLimit(issue) || !issues.some((other, place) => isNearer(other, issue, place > index)),
  );
}

/** `action: expected …, but it is "dance"`: the key, what belongs there, and what was there if that is a short word. */
function explain(issue: Issue, value: unknown): string {
  const {path, message} = issue;
  const found = path.reduce<unknown>(
    (inner, key) => (inner as Record<PropertyKey, unknown> | null)?.[key],
    value,
  );
  const words = ZODS_OWN.test(message) ? inWords(issue, found) : message;
  if (path.length === 0) return words;
  const key = path.join('.');
  if (key === 'schema' && found === undefined) return 'schema is missing: Gleaner did not write it';
  if (found === undefined) return `${key} is missing${words === message ? `: ${words}` : ''}`;
  const isWord = typeof found === 'string' || typeof found === 'number' || typeof found === 'boolean';
  const isTold = !isWord || issue.code === 'invalid_type';
  return `${key}: ${words}${isTold ? '' : `, but it is ${JSON.stringify(found).slice(0, 100)}`}`;
}

/** Messages that no schema of ours wrote. */
const ZODS_OWN = /^(Invalid|Too (big|small)|Unrecognized key)/;
const KINDS: Record<string, string> = {
  array: 'a list',
  object: 'an object',
  record: 'an object',
  string: 'a string',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  null: 'null',
};

function inWords(issue: Issue, found: unknown): string {
  switch (issue.code) {
    case 'invalid_type':
      return `expected ${KINDS[issue.expected] ?? issue.expected}, got ${kindOf(found)}`;
    case 'invalid_value':
      return `expected ${listed(issue.values)}`;
    case 'invalid_union':
      return 'options' in issue
        ? `expected ${listed(issue.options as unknown[])}`
        : 'is of no kind that fits';
    case 'too_big':
      return `expected ${issue.inclusive ? 'at most' : 'less than'} ${quantity(issue.maximum, issue.origin)}`;
    case 'too_small':
      return `expected ${issue.inclusive ? 'at least' : 'more than'} ${quantity(issue.minimum, issue.origin)}`;
    case 'unrecognized_keys':
      return `there is no ${issue.keys.map(key => `"${key}"`).join(', no ')}`;
    case 'invalid_format':
      return `expected the form ${issue.pattern ?? issue.format}`;
    default:
      return issue.message;
  }
}

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'number' && !Number.isInteger(value)) return String(value);
  return KINDS[typeof value] ?? typeof value;
}

function listed(values: readonly unknown[]): string {
  const words = values.map(value => JSON.stringify(value));
  return words.length > 1 ? `one of ${words.join(', ')}` : String(words[0]);
}

const UNITS: Record<string, [one: string, more: string]> = {
  string: ['character', 'characters'],
  array: ['entry', 'entries'],
};

function quantity(limit: number | bigint, origin: string): string {
  const unit = UNITS[origin]?.[Number(limit) === 1 ? 0 : 1];
  return unit ? `${limit} ${unit}` : String(limit);
}
