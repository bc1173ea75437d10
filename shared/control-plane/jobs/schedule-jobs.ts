/** New documents of jobs: a valid one waits for a worker, and any other one is failed with the reason. */
import {z} from 'zod';
import {checkDocument, isInstant} from '../../contracts/document-limits.ts';
import {InvalidDocument, Rejected} from '../../contracts/errors.ts';
import {jobFields} from '../../contracts/job-schemas.ts';
import {parseValue} from '../../contracts/schemas.ts';
import {whyInternetNeeded} from '../../domain/fleet/source.ts';
import type {Job} from '../../domain/job/job.ts';
import {endAttempt, scheduleJob} from '../../domain/job/lifecycle.ts';
import {JOB, paths} from '../../domain/names.ts';
import {iso} from '../../domain/time.ts';
import type {Document, Transaction} from '../../ports.ts';
import {forEachConcurrently} from '../state/concurrency.ts';
import type {Deps} from '../state/deps.ts';
import {jobRecords, storeEnded} from '../state/job-documents.ts';
import {poolOf} from '../state/pool.ts';

/** Jobs that one tick takes up. The next tick takes up the others. */
const MOST_AT_ONCE = 200;

/** Fields that people write, in a document of their own. */
const written = z.looseObject(jobFields);
type Written = z.infer<typeof written>;

/** Takes up every pending job: its event may be lost. */
export async function schedulePending(deps: Deps): Promise<void> {
  const pending = {where: [{field: 'status', op: '==', value: 'pending'}], limit: MOST_AT_ONCE} as const;
  const found = await deps.store.query(deps.config.jobs_collection, {...pending, where: [...pending.where]});
  await forEachConcurrently(found, async ({id}) => {
    try {
      await takeUp(deps, id);
    } catch (error) {
      deps.log('ERROR', `Failed to take up job ${id}: ${(error as Error).message}`, {job: id});
    }
  });
}

/** Takes up the document of a new job. Returns true if the job waits for a worker from now on. */
export async function takeUp(deps: Deps, id: string): Promise<boolean> {
  const path = paths.job(deps.config.jobs_collection, id);
  const known = await deps.store.get(path);
  if (!known || !isNew(known)) return false;
  const checked = await check(deps, id, known);
  return deps.store.transaction(async tx => {
    const data = await tx.get(path);
    if (!data || !isNew(data)) return false;
    // The document changed between the two reads: the check of the newest one decides.
    const isSame = JSON.stringify(data) === JSON.stringify(known);
    const {job, why} = isSame ? checked : await check(deps, id, data);
    return store(deps, tx, data, job, why);
  });
}

/** True for a document that the control plane has not completed yet. */
function isNew({status, queue}: Document): boolean {
  return status === 'pending' || ((status ?? null) === null && queue === undefined);
}

type Checked = {job: Job; why: string | undefined};

/** Completes the document. `why`: why it is no valid job; then `job` has the default of each invalid field. */
async function check(deps: Deps, id: string, data: Document): Promise<Checked> {
  let why: string | undefined;
  let fields: Written;
  try {
    fields = parseValue(written, data, 'The job');
    why = await whyRefused(deps, id, fields);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    why = error.message;
    fields = written.parse(validOf(data));
  }
  return {job: completed(deps, id, data, fields), why};
}

/** Stores a job of a message, which waits for a worker from now on. Returns why it is no valid job, and then stores nothing. */
export async function submitJob(
  deps: Deps,
  tx: Transaction,
  id: string,
  data: Document,
): Promise<string | undefined> {
  const {job, why} = await check(deps, id, data);
  const next = scheduleJob(job, deps.now());
  const refused = why ?? whyNotStored(paths.job(deps.config.jobs_collection, id), next);
  if (refused === undefined) jobRecords.set(deps, tx, next);
  return refused;
}

function validOf(data: Document): Document {
  const isValid = (key: string, value: unknown) =>
    jobFields[key as keyof typeof jobFields]?.safeParse(value).success ?? false;
  return Object.fromEntries(Object.entries(data).filter(([key, value]) => isValid(key, value)));
}

async function whyRefused(deps: Deps, id: string, fields: Written): Promise<string | undefined> {
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
  const need = whyInternetNeeded(source ?? null, environment ?? {});
  if (need && !deps.config.has_internet)
    return `${need} needs the internet, and this deployment has no way out (GLEANER_INTERNET): use a code bundle`;
  return undefined;
}

const NO_LIMITS = {memory_gb: null, processes: null, open_files: null, file_gb: null};

function completed({config, now}: Deps, id: string, data: Document, fields: Written): Job {
  const at = iso(now());
  const instantOf = (value: unknown) => (typeof value === 'string' && isInstant(value) ? value : null);
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
    ...{status: 'pending', queue: null, epoch: 0, lease: null, due_at: null},
    ...{failures: 0, machine_failures: 0, result: null, result_path: null, error: null, cause: null},
    ...{
      exit_code: null,
      attempts: [],
      ran: null,
      log_path: null,
      artifacts_path: null,
      spent_usd: 0,
      long_epoch: null,
      said: {},
    },
    created_at: instantOf(data.created_at) ?? at,
    ...{scheduled_at: null, started_at: null, completed_at: null, updated_at: at},
    expire_at: instantOf(data.expire_at),
  };
}

function defined<T extends object>(given: T): {[Key in keyof T]-?: Exclude<T[Key], undefined>} {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as never;
}

function store(deps: Deps, tx: Transaction, data: Document, job: Job, why: string | undefined): boolean {
  const now = deps.now();
  const path = paths.job(deps.config.jobs_collection, job.job);
  const next = {...data, ...(why === undefined ? scheduleJob(job, now) : failed(job, why, now))};
  const unstorable = whyNotStored(path, next);
  if (unstorable === undefined) {
    if (why === undefined) jobRecords.set(deps, tx, next);
    else storeEnded(deps, tx, job, next, now);
    return why === undefined;
  }
  // Without what the Store refuses: a field of another name, or too much text.
  const bare = {...job, metadata: {}, code: null, command: null};
  storeEnded(deps, tx, job, failed(bare, why ?? unstorable, now), now);
  return false;
}

function failed(job: Job, error: string, now: number): Job {
  return endAttempt(job, {outcome: 'failed', cause: 'invalid', error}, null, now);
}

function whyNotStored(path: string, job: Job): string | undefined {
  try {
    checkDocument(path, job as unknown as Document);
    return undefined;
  } catch (error) {
    if (!(error instanceof InvalidDocument)) throw error;
    return `the document cannot be stored: ${error.message}`;
  }
}
