import {z} from 'zod';
import {InvalidDocument, Rejected} from '../../contracts/errors.ts';
import {jobFields, MAX_RESULT_BYTES} from '../../contracts/messages/job-schemas.ts';
import {parseValue} from '../../contracts/messages/schemas.ts';
import {MAX_EPOCH} from '../../domain/bounds.ts';
import {emptyOf} from '../../domain/fields.ts';
import {inputFolder, runOfInput} from '../../domain/job/inputs.ts';
import {endAttempt, laterThanKept, MOST_ATTEMPTS, MOST_ERROR_CHARS} from '../../domain/job/lifecycle.ts';
import {JOB, paths} from '../../domain/names.ts';
import {type Job, ownFields} from '../../domain/records/job.ts';
import {internetNeed} from '../../domain/records/source.ts';
import {iso} from '../../domain/time.ts';
import {checkDocument, isInstant, isInstantField} from '../../ports/document-limits.ts';
import type {Document, Value} from '../../ports/ports.ts';
import {readPool} from '../caches/pool-cache.ts';
import type {DecisionContext, Deps} from '../deps.ts';
import {runRecords} from '../documents/documents.ts';
import {storeEnded} from '../documents/job-documents.ts';

/** Fields that people write into a document. */
const written = z.looseObject(jobFields);
type Written = z.infer<typeof written>;
type WrittenOf<T extends Record<keyof typeof jobFields, unknown>> = Pick<T, keyof typeof jobFields>;

type Checked = {job: Job; problem: string | undefined};

/** Completes the document. If there is a `problem`, the job is invalid and `job` has the default of each invalid field. */
export async function check(deps: Deps, id: string, data: Document): Promise<Checked> {
  let problem: string | undefined;
  let fields: Written;
  // A null counts as missing: the console and some clients write null for fields that they leave out.
  const given = Object.fromEntries(Object.entries(data).filter(([, value]) => value !== null));
  try {
    fields = parseValue(written, given, 'The job');
    problem = await fieldsProblem(deps, id, fields);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    problem = error.message;
    fields = written.parse(validOf(given));
  }
  const {status = 'pending'} = given;
  if (status !== 'pending')
    problem = `status: ${JSON.stringify(status)} is not a status of a new job: leave it out, or write "pending"`;
  const job = completed(deps, id, data, fields);
  const path = paths.job(deps.config.jobs_collection, id);
  const room = {result: ' '.repeat(ROOM_BYTES)};
  problem ??= storageProblem(path, {...data, ...job});
  if (problem === undefined && storageProblem(path, {...data, ...job, ...room}))
    problem = `the document leaves no room for a result: make it smaller than ${1_048_576 - ROOM_BYTES} bytes, and put long code in a source`;
  return {job, problem};
}

/** Bytes by which a job may grow: its result, its error, and its attempts with their errors. */
const ROOM_BYTES = MAX_RESULT_BYTES + 3 * MOST_ERROR_CHARS + MOST_ATTEMPTS * 4000;

function storageProblem(path: string, document: object): string | undefined {
  try {
    checkDocument(path, document as Document);
    return undefined;
  } catch (error) {
    if (!(error instanceof InvalidDocument)) throw error;
    return `the document cannot be stored: ${error.message}`;
  }
}

function validOf(data: Document): Document {
  const isValid = (key: string, value: unknown) =>
    jobFields[key as keyof typeof jobFields]?.safeParse(value).success ?? false;
  return Object.fromEntries(Object.entries(data).filter(([key, value]) => isValid(key, value)));
}

async function fieldsProblem(deps: Deps, id: string, fields: Written): Promise<string | undefined> {
  if (!JOB.test(id))
    return `the id ${JSON.stringify(id)} is not a job id: use 1 to 100 letters, digits, dashes and underscores, not of the form __x__`;
  const {code, args, command, source, environment, env, secrets} = fields;
  if ((code ?? null) === null && (command ?? null) === null)
    return 'the job has neither code nor command: write one of them';
  if ((code ?? null) !== null && (command ?? null) !== null)
    return 'the job has code and command: write one of them';
  if ((args ?? null) !== null && (code ?? null) === null)
    return 'args are for code alone: append them to the command';
  const name = fields.pool ?? deps.config.pool.pool;
  const pool = await readPool(deps, name);
  if (!pool) return `there is no pool "${name}": create it with a message, or name another`;
  if (fields.slices > 1 && deps.config.max_hosts === 1)
    return `a job of ${fields.slices} slices needs TPUs that reach each other, and the network of this deployment is closed between them: set max_hosts (GLEANER_MAX_HOSTS) above 1`;
  const twice = Object.keys(secrets ?? {}).find(variable => Object.hasOwn(env ?? {}, variable));
  if (twice) return `${twice} is in env and in secrets: leave it out of one of them`;
  const known = Object.keys(deps.config.secrets.jobs);
  const unknown = Object.values(secrets ?? {}).find(each => !known.includes(each));
  if (unknown)
    return `secret ${unknown} is not in job_secrets: ${known.length > 0 ? `use ${known.join(', ')}, or ` : ''}add it to job_secrets of the deployment`;
  const need = internetNeed(source ?? null, environment ?? {});
  if (need && !deps.config.has_internet)
    return `${need} needs the internet, and this deployment has no way out (GLEANER_INTERNET): use a code bundle`;
  return inputsProblem(deps, fields.inputs);
}

async function inputsProblem({config, store, objects}: Deps, inputs: string[]): Promise<string | undefined> {
  if (inputs.length > 0 && !config.jobs_have_network)
    return 'inputs need job_egress nat: this deployment gives jobs no network';
  for (const input of inputs) {
    const [run, folder] = [runOfInput(input), inputFolder(input, objects.bucket)];
    if (run === undefined && folder === undefined)
      return `${input} is not of this deployment: name run:NAME, or a folder below gs://${objects.bucket}/ in activations/, datasets/ or models/`;
    if (folder === undefined || (run !== undefined && !(await runRecords.get(store, run))))
      return `input ${input} does not exist`;
    if ((await objects.list(folder, {limit: 1})).length === 0)
      return `input ${input} ${run === undefined ? 'does not exist' : 'has no output yet'}`;
  }
  return undefined;
}

const NO_ATTEMPT = emptyOf(ownFields);

/** Fields of ours that a job keeps when a person returns it to `pending`, because epochs only grow and money stays spent. */
const KEPT_FIELDS = z.object({
  epoch: ownFields.epoch.max(MAX_EPOCH).catch(0),
  attempts: ownFields.attempts.max(MOST_ATTEMPTS).catch([]),
  spent_usd: z.number().min(0).catch(0),
});

function completed({config, now}: Deps, id: string, data: Document, fields: Written): Job {
  const at = iso(now());
  const instantOf = (value: unknown) => (typeof value === 'string' && isInstant(value) ? value : null);
  const before = KEPT_FIELDS.parse(data);
  const names = Object.keys(jobFields) as (keyof typeof jobFields)[];
  const written = Object.fromEntries(names.map(name => [name, fields[name] ?? null])) as WrittenOf<Job>;
  return {
    ...written,
    job: id,
    pool: fields.pool ?? config.pool.pool,
    ...NO_ATTEMPT,
    ...before,
    status: 'pending',
    created_at: instantOf(data.created_at) ?? at,
    updated_at: at,
    expire_at: laterThanKept(instantOf(data.expire_at), now()),
  };
}

/** Fails the document with the reason. A field that the Store cannot write back is renamed, and a text beyond its limit is left out. */
export function storeInvalid({deps, tx, now}: DecisionContext, data: Document, job: Job, error: string) {
  const failed = endAttempt(job, {outcome: 'failed', cause: 'invalid', error}, null, now);
  const named = withValidNames({...data, ...failed}) as unknown as Job;
  const path = paths.job(deps.config.jobs_collection, job.job);
  const isTooLarge = storageProblem(path, named) !== undefined;
  storeEnded(deps, tx, job, isTooLarge ? {...failed, code: null, command: null, metadata: {}} : named, now);
}

/** The document with each field under a name that the Store accepts. A name that ends in `_at` without an instant gets another `_`. */
function withValidNames(document: object): Document {
  return Object.fromEntries(
    Object.entries(document).map(([name, value]) => {
      const plain = name.replace(/["\\\p{Cc}]/gu, '_');
      const isNoInstant = isInstantField(plain) && value !== null && !isInstant(value);
      return [isNoInstant ? `${plain}_` : plain, validValue(value)];
    }),
  );
}

function validValue(value: Value): Value {
  if (Array.isArray(value)) return value.map(validValue);
  return typeof value === 'object' && value !== null ? withValidNames(value) : value;
}
