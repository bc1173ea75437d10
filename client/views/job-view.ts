/** Jobs for a person. An unchecked document may lack every field, or have other values. */
import {isFinal} from '../../shared/domain/job/lifecycle.ts';
import type {Document, Value} from '../../shared/ports/ports.ts';
import {nameIn} from '../cloud/find-job.ts';
import {bytesText, type Column, dollarText, durationText} from '../text/format.ts';
import type {JobView} from './jobs.ts';

const RESULT_CHARS = 2000;
const RESULT_LINES = 20;
/** Characters of a result in one line. */
const SHORT_CHARS = 200;

/** ` (memory): reason`, as far as it is known. */
export function reasonOf({cause, error}: Document): string {
  const first = typeof error === 'string' ? error.trimEnd().split('\n').at(-1) : undefined;
  return `${cause ? ` (${cause})` : ''}${first ? `: ${first}` : ''}`;
}

export const jobColumns = {
  job: {title: 'Job', cell: ({id}) => id},
  state: {title: 'State', cell: ({job}) => text(job.status ?? 'pending')},
  pool: {title: 'Pool', cell: ({job}) => text(job.pool)},
  worker: {title: 'Worker', cell: ({job}) => workerOf(job)},
  created: {title: 'Created', cell: ({job}) => timeOf(job.created_at)},
  duration: {title: 'Duration', cell: ({job}) => durationOf(job), right: true},
  cost: {title: 'Cost', cell: ({job}) => costOf(job), right: true},
  name: {title: 'Name', cell: nameOf},
  inputs: {title: 'Inputs', cell: ({job}) => inputsOf(job)},
  reason: {title: 'Reason', cell: whyOf},
} satisfies Record<string, Column<JobView>>;

function nameOf({job}: JobView): string {
  const {challenge_number} = job;
  const challenge =
    challenge_number === null || challenge_number === undefined ? '' : `challenge ${challenge_number}`;
  return text(nameIn(job) ?? challenge);
}

function whyOf({job, waits}: JobView): string {
  return waits ?? (isFinal(job) && job.status !== 'completed' ? reasonOf(job).trim() : '');
}

const inputsOf = ({inputs}: Document) => (Array.isArray(inputs) ? inputs.map(text).join(' ') : text(inputs));

/** The first worker of the running attempt, or of the last one, and the number of the others. */
function workerOf(job: Document): string {
  const [first = '', ...others] = holdersOf(job);
  return others.length === 0 ? first : `${first} +${others.length}`;
}

export function holdersOf({lease, attempts}: Document): string[] {
  const last = Array.isArray(attempts) ? (attempts as Document[]).at(-1) : undefined;
  return workersOf((lease as Document | null | undefined) ?? last ?? {});
}

/** The workers of a lease or an attempt: one for each slice. */
export function workersOf({worker, members}: Document): string[] {
  const names = Array.isArray(members) ? (members as Document[]).map(member => member.worker) : [];
  return (names.length > 0 ? names : [worker]).map(text).filter(name => name !== '');
}

/** From the start of the newest attempt to its end, or to now while it runs. */
function durationOf({status, started_at, completed_at}: Document): string {
  const [begin, end] = [started_at, completed_at].map(at => (typeof at === 'string' ? Date.parse(at) : NaN));
  const until = status === 'running' ? Date.now() : (end ?? NaN);
  const seconds = (until - (begin ?? NaN)) / 1000;
  return Number.isFinite(seconds) ? durationText(Math.max(0, seconds)) : '';
}

function costOf({spent_usd}: Document): string {
  return typeof spent_usd === 'number' && spent_usd > 0 ? dollarText(spent_usd) : '';
}

/** Lines about a job that has ended: its result, artifacts, duration and cost, each if it has one. */
export function endLines(id: string, job: Document): string[] {
  const line = (name: string, value: string) => (value === '' ? [] : [`  ${name.padEnd(10)} ${value}`]);
  const artifacts = job.artifacts_path ? `${text(job.artifacts_path)}: gleaner jobs cp ${id} FOLDER` : '';
  return [
    ...line('result', shortResult(id, job)),
    ...line('artifacts', artifacts),
    ...line('duration', durationOf(job)),
    ...line('cost', costOf(job)),
  ];
}

function shortResult(id: string, {result, result_path}: Document): string {
  if (typeof result_path === 'string') return `${result_path}: gleaner jobs get ${id}`;
  if (typeof result !== 'string') return '';
  const [first = '', ...others] = result.trimEnd().split('\n');
  const isWhole = others.length === 0 && first.length <= SHORT_CHARS;
  return isWhole ? first : `${first.slice(0, SHORT_CHARS)} …: gleaner jobs get ${id}`;
}

export function jobLines(id: string, job: Document, waits?: string): string[] {
  const attempts = Array.isArray(job.attempts) ? (job.attempts as Document[]) : [];
  const line = (name: string, value: Value | undefined) =>
    value === null || value === undefined || value === '' ? [] : [`  ${name.padEnd(10)} ${text(value)}`];
  const spent = typeof job.spent_usd === 'number' && job.spent_usd > 0 ? dollarText(job.spent_usd) : null;
  const command = job.command ? text(job.command) : null;
  return [
    `${id}  ${text(job.status)}${isFinal(job) ? reasonOf(job) : ''}${job.cancelled_at ? ', being cancelled' : ''}`,
    ...line('waits', waits),
    ...line('pool', job.pool),
    ...line('command', command),
    ...line('timeout', typeof job.timeout === 'number' ? `${job.timeout} s` : job.timeout),
    ...line('slices', job.slices === 1 ? null : job.slices),
    ...line('priority', job.priority === 0 ? null : job.priority),
    ...line(
      'retries',
      job.max_retries ? `${job.failures ?? 0} failures, up to ${job.max_retries} retries` : null,
    ),
    ...line('env', job.env),
    ...line('secrets', job.secrets),
    ...line('inputs', inputsOf(job)),
    ...line('source', job.source),
    ...line('metadata', job.metadata),
    ...(['created', 'scheduled', 'started', 'completed'] as const).flatMap(name =>
      line(name, timeOf(job[`${name}_at`])),
    ),
    ...line('deadline', timeOf(job.deadline_at)),
    ...line('cost', spent === null ? null : `${spent}${job.budget_usd ? ` of $${job.budget_usd}` : ''}`),
    ...line('ran', ranText(job.ran as Document | null | undefined)),
    ...attempts.map(attemptLine),
    ...line('exit code', job.exit_code),
    ...line('output', job.log_path),
    ...line('artifacts', job.artifacts_path),
    ...line('checkpoint', checkpointText(job.checkpoint_state as Document | null | undefined)),
    ...line('result in', job.result_path),
    ...block('error', job.error),
    ...block('result', job.result),
  ];
}

/** `1.2 GB of 12:31 (step 40), $0.01`, and why the last version is not newer. */
function checkpointText(state: Document | null | undefined): string {
  const {complete, problem = null, storage_usd = 0} = state ?? {};
  const {at, label, bytes = 0} = (complete ?? {}) as Document;
  const cost = Number(storage_usd) >= 0.005 ? `, ${dollarText(Number(storage_usd))}` : '';
  const version = at
    ? `${bytesText(Number(bytes))} of ${timeOf(at)}${label ? ` (${label})` : ''}${cost}`
    : '';
  return [version, ...(problem === null ? [] : [text(problem)])].filter(Boolean).join('; ');
}

function attemptLine(attempt: Document): string {
  const {epoch, outcome, cause, exit_code, cost_usd, restored_at} = attempt;
  const code = exit_code === null || exit_code === undefined ? '' : `, exit code ${exit_code}`;
  const cost = typeof cost_usd === 'number' ? `, ${dollarText(cost_usd)}` : '';
  const times = `${timeOf(attempt.started_at)} to ${timeOf(attempt.ended_at)}`;
  const restored = restored_at ? `, from the checkpoint of ${timeOf(restored_at)}` : '';
  return `  attempt ${epoch} on ${workersOf(attempt).join(', ')}: ${text(outcome)}${cause ? ` (${cause})` : ''}${code}${cost}, ${times}${restored}`;
}

/** `commit 0123456789ab, JAX 0.6.0`, of the code that ran. */
export function ranText(ran: Document | null | undefined): string {
  if (!ran) return '';
  const short = (value: Value | undefined) => text(value).slice(0, 12);
  return [
    ran.commit ? `commit ${short(ran.commit)}` : '',
    ran.bundle ? `bundle ${short(ran.bundle)}` : '',
    ran.jax_version ? `JAX ${text(ran.jax_version)}` : '',
  ]
    .filter(part => part !== '')
    .join(', ');
}

/** Head of a long text. `--json` has the whole text. */
function block(name: string, value: Value | undefined): string[] {
  if (typeof value !== 'string' || value === '') return [];
  const head = value.slice(0, RESULT_CHARS).trimEnd().split('\n');
  const isCut = value.length > RESULT_CHARS || head.length > RESULT_LINES;
  const lines = head.slice(0, RESULT_LINES).map(line => `    ${line.replaceAll('\t', '    ')}`);
  return [`  ${name}`, ...lines, ...(isCut ? [`    … ${value.length} characters: --json prints all`] : [])];
}

/** `2026-01-02 03:04:05`, in UTC. */
function timeOf(value: Value | undefined): string {
  return typeof value === 'string' ? value.slice(0, 19).replace('T', ' ') : '';
}

/** A person may write any value into the document of a job. */
export function text(value: Value | undefined): string {
  if (value === null || value === undefined) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
