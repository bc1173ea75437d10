/** Every run, what costs money now, and the alerts. */
import {type Column, counted, dollarText, durationText, numberText} from '../../client/text/format.ts';
import {doneText, type Overview, type RunLine, runColumns} from '../../client/views/overview.ts';
import {type Section, section} from '../html/feed.ts';
import {
  address,
  bar,
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
  withCommands,
} from '../html/html.ts';

const MOST_RUNS = 100;
const MOST_REJECTED = 10;

export function overviewPage(view: Overview, now: number): Section[] {
  return [
    section('head', html`<h1>Overview</h1>${moneyFigures(view, now)}`),
    section('alerts', alerts(view.alerts)),
    section('runs', runs(view, now)),
    section('beside', beside(view)),
  ];
}

function moneyFigures({totals, month, proven_at, runs}: Overview, now: number): Html {
  const active = runs.filter(({run}) => run.status === 'active').length;
  const unknown = totals.unknown_prices > 0 ? `and ${counted(totals.unknown_prices, 'unknown price')}` : '';
  return figures([
    ['Dollars an hour now', dollarText(totals.usd_per_hour), unknown],
    ['TPUs', numberText(totals.tpus), `${numberText(totals.working)} at work`],
    ['Active runs', numberText(active)],
    ['Dollars this month', dollarText(month.usd), month.month],
    // Ticks prove that messages arrive while a TPU lives, and only then.
    ...(totals.tpus > 0 ? [['Last tick', time(proven_at, now)] as [string, Html]] : []),
  ]);
}

function alerts(texts: readonly string[]): Html {
  if (texts.length === 0) return html``;
  return html`<h2>Alerts</h2><ul class="alerts">${texts.map(
    text => html`<li><span class="state bad" aria-hidden="true">▲</span> ${withCommands(text)}</li>`,
  )}</ul>`;
}

function runs({runs, unreadable}: Overview, now: number): Html {
  const rank = {active: 0, paused: 1, failed: 2, completed: 3, stopped: 3};
  const sorted = runs.toSorted(
    (a, b) => rank[a.run.status] - rank[b.run.status] || b.run.updated_at.localeCompare(a.run.updated_at),
  );
  if (runs.length === 0)
    return html`<h2>Runs</h2>${
      unreadable > 0
        ? empty(
            `${counted(unreadable, 'run')} with a document that cannot be read: the alert names its field.`,
          )
        : empty(
            'No runs yet. Make streams of a file, then start a run:',
            'gleaner streams create my.jsonl --num-streams 4 --output-dir streams',
            'gleaner run start my-run --streams streams',
          )
    }`;
  const columns: Column<RunLine, Part>[] = [
    {...runColumns.run, cell: nameOf},
    {title: 'State', cell: ({run}) => state(run.status)},
    {...runColumns.streams, cell: each => bar(each.share, doneText(each))},
    {title: 'Left', cell: leftOf, right: true},
    ...[runColumns.samples, runColumns.size, runColumns.cost],
    {title: 'Changed', cell: ({run}) => time(run.updated_at, now), right: true},
  ];
  return html`<h2>Runs</h2>${table('Runs', columns, sorted.slice(0, MOST_RUNS))}${further(sorted.length - MOST_RUNS, 'runs')}`;
}

function nameOf({run: {run, reason}}: RunLine): Html {
  const why = reason === null ? '' : html`<small class="reason">${withCommands(reason)}</small>`;
  return html`<strong>${link(address('runs', run), run)}</strong>${why}`;
}

function leftOf({run, seconds_left}: RunLine): string {
  return seconds_left === null || run.status !== 'active' ? '' : durationText(seconds_left);
}

function beside({jobs, kept, rejected}: Overview): Html {
  const lines: Html[] = [];
  if (jobs.waiting + jobs.running > 0)
    lines.push(
      html`<p>${link('/jobs', 'Jobs')}: ${numberText(jobs.waiting)} waiting, ${numberText(jobs.running)} running${jobs.on.length > 0 ? html` on ${tpuLinks(jobs.on.slice(0, 5))}` : ''}</p>`,
    );
  for (const {pool, text} of kept) lines.push(html`<p>Pool ${pool} ${text}.</p>`);
  const texts = [...new Set(rejected.map(({text}) => text))];
  if (texts.length > 0)
    lines.push(
      html`<h2>Rejected objects</h2><ul class="plain">${texts.slice(-MOST_REJECTED).map(text => html`<li>${withCommands(text)}</li>`)}</ul>${further(texts.length - MOST_REJECTED, 'objects')}`,
    );
  return html`${lines}`;
}
