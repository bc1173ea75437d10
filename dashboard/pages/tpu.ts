/** A TPU: what it does now, where its time and its dollars went, how its lives ended, and the end of its log. */

import type {Attempt} from '../../client/json/tpus.ts';
import {logText} from '../../client/logs/log-line.ts';
import {type Column, dollarText, durationText, numberText} from '../../client/text/format.ts';
import {viewHosts} from '../../client/views/hosts.ts';
import type {LogTail, TpuPage} from '../../client/views/tpu-page.ts';
import {hourText} from '../../client/views/tpus.ts';
import {parseJobWork, parseWork} from '../../shared/domain/names.ts';
import {symptomText} from '../../shared/domain/worker/provider-states.ts';
import {waterfall} from '../html/charts.ts';
import {type Section, section} from '../html/feed.ts';
import {address, facts, figures, type Html, html, link, type Part, state, table, time} from '../html/html.ts';
import {tpuCommands} from './commands.ts';
import {capitalised, sentence} from './why.ts';

export function tpuPage(page: TpuPage, now: number): Section[] {
  const {row, worker, attempts, attempt, incarnation} = page;
  const earlier = attempts.filter(each => each.incarnation !== incarnation);
  return [
    section('head', attempt ? endedHead(page, attempt, now) : livingHead(page, now)),
    section('phases', phases(page)),
    section('log', logTail(page.log)),
    section('lives', earlier.length > 0 ? html`<h2>Other lives</h2>${lives(row.tpu, earlier, now)}` : html``),
    tpuCommands(worker),
    section(
      'document',
      html`<p>${link(address('documents', 'workers', worker.name), 'The document of the TPU')}</p>`,
    ),
  ];
}

function livingHead({row, worker, why, incarnation}: TpuPage, now: number): Html {
  const values: [string, Part][] = [
    ['Pool', `${row.pool}, ${row.zone}${row.accelerator ? `, ${row.accelerator}` : ''}`],
    ['Works on', workLink(row.work, row.activity)],
    ['Node', [worker.provider_state, worker.health, worker.queue_state].filter(Boolean).join(', ')],
    ...(worker.host_count > 1 ? viewHosts(worker) : []).map(({host, phase, heartbeat_at}): [string, Part] => [
      `Host ${host}`,
      heartbeat_at === null
        ? html`${phase}, no report yet`
        : html`${phase}, last report ${time(heartbeat_at, now)}`,
    ]),
    ['Boot step', row.boot_step ?? ''],
    ['Last error', row.last_error ?? ''],
    ['Last end', worker.last_death ?? ''],
    ...worker.symptoms.map((symptom): [string, Part] => ['Symptom', symptomText(symptom)]),
  ];
  const {samples_done, samples_total, tokens_per_s} = worker;
  return html`<h1>${row.tpu} ${state(row.status)}</h1>${sentence(why)}${figures([
    ['Life', numberText(incarnation)],
    ['In this phase', time(row.since_at, now)],
    ['Heartbeat', time(row.heartbeat_at, now)],
    [
      'Samples',
      samples_done === null ? '–' : numberText(samples_done),
      samples_total === null ? '' : `of ${numberText(samples_total)}`,
    ],
    ['Tokens/s', tokens_per_s === null ? '–' : numberText(Math.round(tokens_per_s))],
    ['Cost', dollarText(row.cost_usd), hourText(row.usd_per_hour)],
  ])}${facts(values)}`;
}

function endedHead({row}: TpuPage, attempt: Attempt, now: number): Html {
  const {cause, evidence, ready_at, ended_at, cost_usd, work, last_phase} = attempt;
  const lived =
    ready_at === null
      ? 'never'
      : durationText(Math.max(0, Date.parse(ended_at) - Date.parse(ready_at)) / 1000);
  return html`<h1>${row.tpu}, life ${numberText(attempt.incarnation)} ${state('ended', 'off')}</h1><p class="lead">${capitalised(cause)}</p><p class="quiet">${evidence}</p>${figures(
    [
      ['Ended', time(ended_at, now)],
      ['READY for', lived],
      ['Cost', dollarText(cost_usd)],
    ],
  )}${facts([
    ['Last phase', last_phase ?? ''],
    ['Worked on', workLink(work, null)],
    ['This slot now', link(address('tpus', row.tpu), row.status.toLowerCase())],
  ])}`;
}

function workLink(work: string | null, activity: string | null): Part {
  if (work === null) return activity ?? '';
  const [stream, job] = [parseWork(work), parseJobWork(work)];
  const href = stream ? address('runs', stream.run, 'streams', stream.stream) : address('jobs', job ?? '');
  return html`${link(href, work)}${activity ? ` (${activity})` : ''}`;
}

function phases({phases, attempt}: TpuPage): Html {
  const bars = Object.entries(phases).map(([name, {seconds, usd}]) => ({
    name,
    amount: seconds,
    texts: [durationText(seconds), usd ? dollarText(usd) : ''],
  }));
  if (bars.length === 0)
    return html`<h2>Phases</h2><p class="quiet">No phase of this life has ended yet.</p>`;
  return html`<h2>Phases</h2>${waterfall(attempt ? 'Where the time of this life went' : 'Where the time of this life goes', bars)}`;
}

function logTail({object, lines}: LogTail): Html {
  const text = (lines ?? []).flatMap(logText).join('\n');
  const body =
    lines === null
      ? html`<p class="quiet">The log is too large for a page: <code>${object}</code>.</p>`
      : lines.length === 0
        ? html`<p class="quiet">No log yet. A host stores its first lines when it has booted, or when its boot has failed.</p>`
        : html`<pre class="log" tabindex="0">${text}</pre>`;
  return html`<h2>End of its log</h2>${body}`;
}

function lives(tpu: string, attempts: readonly Attempt[], now: number): Html {
  const pageOf = ({incarnation}: Attempt) =>
    link(address('tpus', tpu, String(incarnation)), numberText(incarnation));
  const columns: Column<Attempt, Part>[] = [
    {title: 'Life', cell: pageOf, right: true},
    {title: 'Cause of its end', cell: ({cause, evidence}) => html`${cause} <small>${evidence}</small>`},
    {title: 'Worked on', cell: ({work}) => work ?? ''},
    {title: 'Ended', cell: ({ended_at}) => time(ended_at, now), right: true},
    {title: 'Cost', cell: ({cost_usd}) => dollarText(cost_usd), right: true},
  ];
  return table('Ended lives', columns, attempts);
}
