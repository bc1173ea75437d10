/** Checks the document of a job that a person wrote, and completes it. */
import {z} from 'zod';
import {isInstant} from '../../contracts/document-limits.ts';
import {Rejected} from '../../contracts/errors.ts';
import {jobFields} from '../../contracts/job-schemas.ts';
import {parseValue} from '../../contracts/schemas.ts';
import {MAX_EPOCH} from '../../domain/bounds.ts';
import type {Job} from '../../domain/job/job.ts';
import {endAttempt, keptUntil, MOST_ATTEMPTS, scheduleJob} from '../../domain/job/lifecycle.ts';
import {JOB, paths} from '../../domain/names.ts';
import {internetNeed} from '../../domain/source/source.ts';
import {iso} from '../../domain/time.ts';
import type {Document, Transaction} from '../../ports.ts';
import {poolOf} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {storeEnded} from '../documents/job-documents.ts';
import {jobDocument} from '../documents/job-schema.ts';
import {storageProblem, withValidNames} from '../documents/storable-job.ts';

/** Fields that people write, in a document of their own. */
const written = z.looseObject(jobFields);
type Written = z.infer<typeof written>;

type Checked = {job: Job; problem: string | undefined};

/** Completes the document. With a `problem` it is no valid job, and `job` has the default of each invalid field. */
export async function check(deps: Deps, id: string, data: Document): Promise<Checked> {
  let problem: string | undefined;
  let fields: Written;
  // A null is no value: the console and some clients write nulls for fields that they leave out.
  const given = Object.fromEntries(Object.entries(data).filter(([, value]) => value !== null));
  try {
    fields = parseValue(written, given, 'The job');
    problem = await fieldsProblem(deps, id, fields);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    problem = error.message;
    fields = written.parse(validOf(given));
  }
  const job = completed(deps, id, data, fields);
  problem ??= storageProblem(paths.job(deps.config.jobs_collection, id), {
    ...data,
    ...scheduleJob(job, deps.now()),
  });
  return {job, problem};
}

/** The fields of any document as those of a job. Invalid fields have their defaults. */
export function asJob(deps: Deps, id: string, data: Document): Job {
  return completed(deps, id, data, written.parse(validOf(data)));
}

function validOf(data: Document): Document {
  const isValid = (key: string, value: unknown) =>
    jobFields[key as keyof typeof jobFields]?.safeParse(value).success ?? false;
  return Object.fromEntries(Object.entries(data).filter(([key, value]) => isValid(key, value)));
}

async function fieldsProblem(deps: Deps, id: string, fields: Written): Promise<string | undefined> {
  if (!JOB.test(id))
    return `the id ${JSON.stringify(id)} is no id of a job: use 1 to 100 letters, digits, dashes and underscores`;
  const {code, command, source, environment} = fields;
  if ((code ?? null) === null && (command ?? null) === null)
    return 'the job has neither code nor command: write one of them';
  if ((code ?? null) !== null && (command ?? null) !== null)
    return 'the job has code and command: write one of them';
  const name = fields.pool ?? deps.config.pool.pool;
  if (!(await poolOf(deps, name)))
    return `there is no pool "${name}": create it with a message, or name another`;
  const need = internetNeed(source ?? null, environment ?? {});
  if (need && !deps.config.has_internet)
    return `${need} needs the internet, and this deployment has no way out (GLEANER_INTERNET): use a code bundle`;
  return undefined;
}

const NO_LIMITS = {memory_gb: null, processes: null, open_files: null, file_gb: null};

/** Fields of ours that a job keeps when a person returns it to `pending`: epochs only grow, and money stays spent. */
const KEPT_FIELDS = z.object({
  epoch: jobDocument.shape.epoch.max(MAX_EPOCH).catch(0),
  attempts: jobDocument.shape.attempts.max(MOST_ATTEMPTS).catch([]),
  spent_usd: z.number().min(0).catch(0),
});

function completed({config, now}: Deps, id: string, data: Document, fields: Written): Job {
  const at = iso(now());
  const instantOf = (value: unknown) => (typeof value === 'string' && isInstant(value) ? value : null);
  const before = KEPT_FIELDS.parse(data);
  const {limits} = fields;
  return {
    job: id,
    challenge_number: fields.challenge_number ?? null,
    code: fields.code ?? null,
    command: fields.command ?? null,
    ...{timeout: fields.timeout, priority: fields.priority, max_retries: fields.max_retries},
    pool: fields.pool ?? config.pool.pool,
    source: fields.source ?? null,
    environment: (fields.environment ?? null) as Job['environment'],
    limits: limits ? {...NO_LIMITS, ...defined(limits)} : null,
    metadata: fields.metadata,
    deadline_at: fields.deadline_at ?? null,
    budget_usd: fields.budget_usd ?? null,
    ...{status: 'pending', queue: null, lease: null, due_at: null},
    ...{failures: 0, machine_failures: 0, result: null, result_path: null, error: null, cause: null},
    ...{exit_code: null, ran: null, log_path: null, artifacts_path: null, long_epoch: null, said: {}},
    ...before,
    created_at: instantOf(data.created_at) ?? at,
    ...{scheduled_at: null, started_at: null, completed_at: null, updated_at: at},
    expire_at: laterThanKept(instantOf(data.expire_at), now()),
  };
}

/** A job that waits or runs must not expire: an earlier time than that of an ended job counts for nothing. */
function laterThanKept(expire_at: string | null, now: number): string | null {
  return expire_at !== null && expire_at > keptUntil(now) ? expire_at : null;
}

function defined<T extends object>(given: T): {[Key in keyof T]-?: Exclude<T[Key], undefined>} {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as never;
}

/** Fails the document with the reason. */
export function storeInvalid(
  deps: Deps,
  tx: Transaction,
  data: Document,
  job: Job,
  error: string,
  now: number,
): void {
  const failed = endAttempt(job, {outcome: 'failed', cause: 'invalid', error}, null, now);
  storeEnded(deps, tx, job, {...withValidNames(data), ...failed}, now);
}
