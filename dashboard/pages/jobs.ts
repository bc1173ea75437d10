/** Jobs and commands on hosts: the queue, the output and the result of each. */

import {bytesText, dollarText, durationText, numberText} from '../../client/text/format.ts';
import type {ExecView} from '../../client/views/execs.ts';
import {holdersOf, jobRow, ranText, reasonOf, workersOf} from '../../client/views/job-view.ts';
import type {JobPage, JobView} from '../../client/views/jobs.ts';
import type {Exec} from '../../shared/domain/records/exec.ts';
import type {Document} from '../../shared/ports/ports.ts';
import type {Section} from '../html/feed.ts';
import {
  address,
  command,
  empty,
  figures,
  further,
  type Html,
  html,
  link,
  type Part,
  state,
  table,
  time,
} from '../html/html.ts';
import {jobCommands} from './commands.ts';
import {section} from './section.ts';

export function jobsPage({jobs, execs}: {jobs: JobView[]; execs: Exec[]}, now: number): Section[] {
  return [
    section('head', html`<h1>Jobs and commands</h1>`),
    section(
      'jobs',
      html`<h2>Jobs</h2>${jobs.length > 0 ? jobTable(jobs) : empty('No jobs yet. A job is Python code, or a command, on a TPU of a pool:', 'gleaner jobs submit FILE.py --follow')}`,
    ),
    section(
      'execs',
      html`<h2>Commands on hosts</h2>${execs.length > 0 ? execTable(execs, now) : empty('No command yet. A command runs on every host of a pool or a TPU:', 'gleaner exec tpu -- uname -a')}`,
    ),
  ];
}

function jobTable(jobs: readonly JobView[]): Html {
  const columns = [
    ...[{title: 'Job'}, {title: 'State'}, {title: 'Pool'}, {title: 'TPU'}, {title: 'Created (UTC)'}],
    ...[
      {title: 'Duration', number: true},
      {title: 'Cost', number: true},
    ],
  ];
  const rows = jobs.map(view => {
    const [id = '', status = '', pool, , created, duration, cost, name, reason] = jobRow(view);
    const more = reason ? html`<small class="reason">${reason}</small>` : '';
    return [
      html`<strong>${link(address('jobs', id), name || id)}</strong>${more}`,
      ...[state(status), pool, holders(view.job), created, duration, cost],
    ];
  });
  return table('The newest jobs', columns, rows);
}

function execTable(execs: readonly Exec[], now: number): Html {
  const columns = [
    ...[{title: 'Command'}, {title: 'State'}, {title: 'Target'}, {title: 'Hosts', number: true}],
    ...[
      {title: 'Failed', number: true},
      {title: 'Started', number: true},
    ],
  ];
  const rows = execs.map(exec => [
    html`${link(address('execs', exec.exec), exec.argv.join(' ').slice(0, 80))}${exec.reason ? html`<small class="reason">${exec.reason}</small>` : ''}`,
    ...[state(exec.status), exec.target, numberText(exec.hosts)],
    exec.status === 'running' ? '' : numberText(exec.hosts_failed),
    time(exec.created_at, now),
  ]);
  return table('The newest commands', columns, rows);
}

export function jobPage({id, job, waits, output, artifacts}: JobPage, now: number): Section[] {
  const attempts = Array.isArray(job.attempts) ? (job.attempts as Document[]) : [];
  const [, status = 'pending', pool = '', , , duration = '', cost = '', name = ''] = jobRow({
    id,
    job,
    waits,
  });
  const reason = waits ?? reasonOf(job).trim();
  const head = html`<h1>${name || id} ${state(status)}</h1>${name ? html`<p class="quiet">${id}</p>` : ''}${reason ? html`<p class="lead">${reason}</p>` : ''}${figures(
    [
      ['Pool', pool],
      ['TPU', holdersOf(job).length > 0 ? holders(job) : '–'],
      ['Created', time(textOf(job.created_at), now)],
      ['Duration', duration || '–'],
      ['Cost', cost || '–'],
      ['Ran', ranText(job.ran as Document | null | undefined) || '–'],
    ],
  )}`;
  return [
    section('head', head),
    section('result', result(id, job)),
    section(
      'output',
      html`<h2>Output</h2>${output.length > 0 ? html`<pre class="log" tabindex="0">${output.join('\n')}</pre>` : html`<p class="quiet">No output yet.</p>`}`,
    ),
    section('artifacts', files(id, artifacts)),
    section('attempts', attempts.length > 0 ? html`<h2>Attempts</h2>${attemptTable(attempts, now)}` : html``),
    section('code', code(job)),
    jobCommands(id, status),
    section('document', html`<p>${link(address('documents', 'jobs', id), 'The document of the job')}</p>`),
  ];
}

function result(id: string, {result, result_path, error}: Document): Html {
  const text = typeof result === 'string' ? result : typeof error === 'string' ? error : null;
  if (typeof result_path === 'string')
    return html`<h2>Result</h2><p>It is too long for a page: ${command(`gleaner jobs get ${id}`)}</p>`;
  if (text === null) return html``;
  return html`<h2>${typeof result === 'string' ? 'Result' : 'Error'}</h2><pre tabindex="0">${text.slice(0, 20_000)}</pre>`;
}

const MOST_FILES = 100;

function files(id: string, artifacts: JobPage['artifacts']): Html {
  if (artifacts.length === 0) return html``;
  const rows = artifacts
    .slice(0, MOST_FILES)
    .map(({name, size_bytes, isLarge}) => [
      isLarge ? name : link(address('jobs', id, 'artifacts', name), name),
      bytesText(size_bytes),
    ]);
  return html`<h2>Artifacts</h2>${table('Files of the newest attempt', [{title: 'File'}, {title: 'Size', number: true}], rows)}${further(artifacts.length - MOST_FILES, 'files')}<p>${command(`gleaner jobs cp ${id} FOLDER`)}</p>`;
}

function attemptTable(attempts: readonly Document[], now: number): Html {
  const columns = [
    {title: 'Attempt', number: true},
    {title: 'TPU'},
    {title: 'Outcome'},
    {title: 'Ended', number: true},
    {title: 'Cost', number: true},
  ];
  const rows: Part[][] = attempts.map(attempt => [
    textOf(attempt.epoch),
    workersOf(attempt).join(', '),
    outcomeOf(attempt),
    time(textOf(attempt.ended_at) || null, now),
    typeof attempt.cost_usd === 'number' ? dollarText(attempt.cost_usd) : '',
  ]);
  return table('Ended attempts', columns, rows);
}

function outcomeOf({outcome, cause, error}: Document): Html {
  return html`${textOf(outcome)}${cause ? ` (${textOf(cause)})` : ''}${error ? html`<small class="reason">${textOf(error).slice(0, 400)}</small>` : ''}`;
}

/** Links to the TPUs of the running attempt, or of the last one. */
function holders(job: Document): Html {
  return html`${holdersOf(job).map((worker, index) => html`${index > 0 ? ', ' : ''}${link(address('tpus', worker), worker)}`)}`;
}

function code({code, command: words}: Document): Html {
  const text = typeof code === 'string' ? code : Array.isArray(words) ? words.join(' ') : textOf(words);
  if (!text) return html``;
  return html`<details><summary>Code</summary><pre>${text.slice(0, 20_000)}</pre></details>`;
}

export function execPage({exec, hosts}: ExecView, now: number): Section[] {
  const head = html`<h1>Command ${state(exec.status)}</h1><p><code class="command">${exec.argv.join(' ')}</code></p>${exec.reason ? html`<p class="lead">${exec.reason}</p>` : ''}${figures(
    [
      ['Target', exec.target],
      ['Hosts', numberText(exec.hosts)],
      ['Started', time(exec.created_at, now)],
      ['Limit', durationText(exec.timeout_s)],
    ],
  )}`;
  const body = hosts.map(
    ({worker, host, status, exit_code, error, output}) =>
      html`<h3>${worker}/${numberText(host)} ${state(status)} ${exit_code === null ? '' : html`<small>exit code ${exit_code}</small>`}</h3>${error ? html`<p class="note">${error}</p>` : ''}${output.length > 0 ? html`<pre class="log" tabindex="0">${output.join('\n')}</pre>` : ''}`,
  );
  return [
    section('head', head),
    section(
      'hosts',
      html`<h2>Hosts</h2>${body.length > 0 ? body : empty('No host has its document yet.')}${further(exec.hosts - hosts.length, 'hosts')}`,
    ),
  ];
}

/** A person may write any value into the document of a job. */
function textOf(value: unknown): string {
  if (value === null || value === undefined) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
