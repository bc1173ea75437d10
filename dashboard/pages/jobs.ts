/** Jobs and commands on hosts: the queue, the output and the result of each. */

import {bytesText, type Column, dollarText, durationText, numberText} from '../../client/text/format.ts';
import type {ExecView} from '../../client/views/execs.ts';
import {
  holdersOf,
  jobColumns,
  ranText,
  reasonOf,
  text as textOf,
  workersOf,
} from '../../client/views/job-view.ts';
import type {JobPage, JobView} from '../../client/views/jobs.ts';
import type {Exec} from '../../shared/domain/records/exec.ts';
import type {Document} from '../../shared/ports/ports.ts';
import {type Section, section} from '../html/feed.ts';
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
  tpuLinks,
} from '../html/html.ts';
import {jobCommands} from './commands.ts';

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
  const {duration, cost, pool, created, name, reason} = jobColumns;
  const nameOf = (view: JobView) => {
    const why = reason.cell(view);
    const more = why ? html`<small class="reason">${why}</small>` : '';
    return html`<strong>${link(address('jobs', view.id), name.cell(view) || view.id)}</strong>${more}`;
  };
  const columns: Column<JobView, Part>[] = [
    {title: 'Job', cell: nameOf},
    {title: 'State', cell: view => state(jobColumns.state.cell(view))},
    pool,
    {title: 'TPU', cell: ({job}) => tpuLinks(holdersOf(job))},
    {...created, title: 'Created (UTC)'},
    ...[duration, cost],
  ];
  return table('The newest jobs', columns, jobs);
}

function execTable(execs: readonly Exec[], now: number): Html {
  const columns: Column<Exec, Part>[] = [
    {title: 'Command', cell: commandOf},
    {title: 'State', cell: ({status}) => state(status)},
    {title: 'Target', cell: ({target}) => target},
    {title: 'Hosts', cell: ({hosts}) => numberText(hosts), right: true},
    {
      title: 'Failed',
      cell: ({status, hosts_failed}) => (status === 'running' ? '' : numberText(hosts_failed)),
      right: true,
    },
    {title: 'Started', cell: ({created_at}) => time(created_at, now), right: true},
  ];
  return table('The newest commands', columns, execs);
}

function commandOf({exec, argv, reason}: Exec): Html {
  const why = reason ? html`<small class="reason">${reason}</small>` : '';
  return html`${link(address('execs', exec), argv.join(' ').slice(0, 80))}${why}`;
}

export function jobPage({id, job, waits, output, artifacts}: JobPage, now: number): Section[] {
  const attempts = Array.isArray(job.attempts) ? (job.attempts as Document[]) : [];
  const view = {id, job, waits};
  const [status, name] = [jobColumns.state.cell(view), jobColumns.name.cell(view)];
  const reason = waits ?? reasonOf(job).trim();
  const head = html`<h1>${name || id} ${state(status)}</h1>${name ? html`<p class="quiet">${id}</p>` : ''}${reason ? html`<p class="lead">${reason}</p>` : ''}${figures(
    [
      ['Pool', jobColumns.pool.cell(view)],
      ['TPU', holdersOf(job).length > 0 ? tpuLinks(holdersOf(job)) : '–'],
      ['Created', time(textOf(job.created_at), now)],
      ['Duration', jobColumns.duration.cell(view) || '–'],
      ['Cost', jobColumns.cost.cell(view) || '–'],
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
  const linkOf = (name: string) => link(address('jobs', id, 'artifacts', name), name);
  const columns: Column<JobPage['artifacts'][number], Part>[] = [
    {title: 'File', cell: ({name, isLarge}) => (isLarge ? name : linkOf(name))},
    {title: 'Size', cell: ({size_bytes}) => bytesText(size_bytes), right: true},
  ];
  return html`<h2>Artifacts</h2>${table('Files of the newest attempt', columns, artifacts.slice(0, MOST_FILES))}${further(artifacts.length - MOST_FILES, 'files')}<p>${command(`gleaner jobs cp ${id} FOLDER`)}</p>`;
}

function attemptTable(attempts: readonly Document[], now: number): Html {
  const columns: Column<Document, Part>[] = [
    {title: 'Attempt', cell: ({epoch}) => textOf(epoch), right: true},
    {title: 'TPU', cell: attempt => workersOf(attempt).join(', ')},
    {title: 'Outcome', cell: outcomeOf},
    {title: 'Ended', cell: ({ended_at}) => time(textOf(ended_at) || null, now), right: true},
    {
      title: 'Cost',
      cell: ({cost_usd}) => (typeof cost_usd === 'number' ? dollarText(cost_usd) : ''),
      right: true,
    },
  ];
  return table('Ended attempts', columns, attempts);
}

function outcomeOf({outcome, cause, error}: Document): Html {
  return html`${textOf(outcome)}${cause ? ` (${textOf(cause)})` : ''}${error ? html`<small class="reason">${textOf(error).slice(0, 400)}</small>` : ''}`;
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
