import {randomInt} from 'node:crypto';
import {hostname, userInfo} from 'node:os';
import {setTimeout as sleep} from 'node:timers/promises';
import {z} from 'zod';
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {readFleet, requirePool} from '../../client/cloud/fleet.ts';
import {apply, POLL_MS, publishLine} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {CliError, UsageError} from '../../client/text/errors.ts';
import {print, say} from '../../client/text/output.ts';
import {jobFields} from '../../shared/contracts/messages/job-schemas.ts';
import {parseValue} from '../../shared/contracts/messages/schemas.ts';
import {poolOf} from '../../shared/domain/deployment.ts';
import {paths} from '../../shared/domain/names.ts';
import type {JobAttempt} from '../../shared/domain/records/job.ts';
import type {Environment} from '../../shared/domain/records/source.ts';
import type {Holder} from '../../shared/domain/stream/lease.ts';
import {refuseProblems} from '../checks/findings.ts';
import {checkSource} from '../checks/repository.ts';
import {definedFields} from '../terminal/field-options.ts';
import {followJob} from './follow.ts';
import {fieldsOf, type JobFields} from './job-file.ts';
import {siblingProblems} from './sibling-imports.ts';
import {environmentOf, type PackedCode, type SourceOptions, sourceOf, upload, uploadLines} from './source.ts';
import {type VariableOptions, variablesOf} from './variables.ts';

type SubmitOptions = CloudOptions &
  SourceOptions &
  VariableOptions & {
    test?: number | boolean;
    command?: boolean;
    timeout?: number;
    pool?: string;
    slices?: number;
    priority?: number;
    max_retries?: number;
    name?: string;
    input?: string[];
    metadata?: [string, string][];
    challenge_number?: number;
    deadline?: string;
    budget_usd?: number;
    test_restart?: boolean;
    follow?: boolean;
    check?: boolean;
  };

/** Publishes a job, waits until it is taken, and prints its id. */
export async function submit(words: string[], options: SubmitOptions): Promise<void> {
  const own = await fieldsOf(words, wordsAfterDashes(), options);
  const code = await sourceOf(options);
  const environment = await environmentOf(options);
  if (code.source === null)
    throw new UsageError('A job always has the source of its pool: leave out --repo none');
  if (code.source && !('bundle' in code.source) && code.source.repo === undefined)
    throw new UsageError('--branch, --pr and --commit need --repo');
  const fields = withOptions(own, options, definedFields({source: code.source, environment}));
  parseValue(z.strictObject(jobFields), fields, 'The job');
  await withCloud(options, async cloud => {
    const id = newId();
    const message = {action: 'submit', job: id, ...fields};
    if (options.dry_run) {
      const commands = [...uploadLines(cloud, code), publishLine(cloud.connection, 'control', message)];
      return print<'jobs submit'>(options.json, {id, commands}, commands);
    }
    if (options.check ?? true) await checkJob(cloud, fields, code, words[0]);
    await upload(cloud, code);
    await apply(cloud, message);
    if (options.test_restart) return compareAfterRestart(cloud, id, fields, options.json);
    print<'jobs submit'>(options.json, {id}, [id]);
    if (options.follow) await followJob(cloud, id, options.json ? say : undefined);
  });
}

async function checkJob(cloud: Cloud, fields: JobFields, {source}: PackedCode, file = ''): Promise<void> {
  const {pool, deadline_at, code, environment} = fields;
  const fleet = await readFleet(cloud);
  if (typeof pool === 'string') requirePool(fleet, pool);
  const own = fleet.pools.find(each => each.pool === (pool ?? poolOf(cloud.connection.deployment)));
  const {setup_script} = {...own?.environment, ...(environment as Partial<Environment> | undefined)};
  const isAlone = file.endsWith('.py') && !source && !own?.source && !setup_script;
  refuseProblems('submit the job', isAlone ? siblingProblems(file, String(code)) : []);
  if (typeof deadline_at === 'string' && Date.parse(deadline_at) <= Date.now())
    refuseProblems('submit the job', [{problem: `the deadline ${deadline_at} is past: give a later one`}]);
  await checkSource('submit the job', source, null);
}

/** The operands behind `--`: commander gives them like the operands before. */
function wordsAfterDashes(): string[] {
  const at = process.argv.indexOf('--');
  return at < 0 ? [] : process.argv.slice(at + 1);
}

function withOptions(fields: JobFields, options: SubmitOptions, code: JobFields): JobFields {
  const {challenge_number, timeout, pool, slices, priority, max_retries} = options;
  const {deadline: deadline_at, budget_usd, input: inputs, name} = options;
  const metadata = {
    submitted_by: sender(),
    ...(typeof fields.metadata === 'object' ? fields.metadata : {}),
    ...definedFields({name}),
    ...Object.fromEntries(options.metadata ?? []),
  };
  const chosen = definedFields({
    ...{challenge_number, timeout, pool, slices, priority, max_retries},
    ...{deadline_at, budget_usd, inputs},
  });
  return {...fields, ...chosen, ...variablesOf(fields, options), ...code, metadata};
}

const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';

/** Id of a new document, in the form of Firestore's own ids. */
export function newId(): string {
  return Array.from({length: 20}, () => LETTERS[randomInt(LETTERS.length)]).join('');
}

/** `user@host` of this process. A user without an entry has its number. */
export function sender(): string {
  let user: string;
  try {
    user = userInfo().username;
  } catch {
    user = String(process.getuid?.() ?? 'unknown');
  }
  return `${user}@${hostname()}`.slice(0, 200);
}

/** Limit of waiting for the ends of the workers that are recreated. */
const RECREATE_S = 1200;

/** Runs the job, recreates the workers of all its slices, runs it again, and compares results and exit codes. */
async function compareAfterRestart(cloud: Cloud, id: string, fields: JobFields, json = false): Promise<void> {
  say(`first run: job ${id}`);
  const first = await followJob(cloud, id, say);
  const last = (first.attempts as JobAttempt[] | undefined)?.at(-1);
  if (!last)
    throw new CliError(`Job ${id} has no result to compare: it is ${first.status}, and no worker ran it`);
  const holders = last.members?.length ? last.members : [last];
  for (const {worker} of holders) {
    await apply(cloud, {action: 'recreate', worker});
    say(`${worker} is recreated`);
  }
  for (const holder of holders) await untilEnded(cloud, holder);
  const again = newId();
  await apply(cloud, {action: 'submit', job: again, ...fields});
  say(`second run: job ${again}`);
  const second = await followJob(cloud, again, say);
  const differs = (['status', 'result', 'exit_code'] as const).filter(
    field => first[field] !== second[field],
  );
  print<'jobs submit'>(
    json,
    {
      same: differs.length === 0,
      differs,
      runs: [first, second].map(({job, status, result, exit_code}) => ({job, status, result, exit_code})),
    },
    differs.length === 0
      ? [`same result before and after the restart: ${first.status}, exit code ${first.exit_code}`]
      : differs.map(
          field => `${field} differs: ${valueText(first[field])} before, ${valueText(second[field])} after`,
        ),
  );
  process.exitCode = differs.length === 0 && first.status === 'completed' ? 0 : 1;
}

function valueText(value: unknown): string {
  const text = JSON.stringify(value ?? null);
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
}

/** Waits until the incarnation is over, so that the second run comes on a fresh TPU. */
async function untilEnded({store}: Cloud, {worker, incarnation}: Holder): Promise<void> {
  for (const end = Date.now() + RECREATE_S * 1000; Date.now() < end; await sleep(POLL_MS)) {
    const found = await store.get(paths.worker(worker));
    if (!found || found.incarnation !== incarnation || found.phase === 'deleting' || found.phase === 'gone')
      return;
  }
  throw new CliError(
    `Failed to recreate ${worker} in ${RECREATE_S} s: see \`gleaner tpus status ${worker}\``,
  );
}
