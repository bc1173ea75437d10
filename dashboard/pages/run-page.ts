/** A run: how far it is and why it waits, its streams, its past, its statistics and its rejected lines. */

import {resultLines} from '../../client/explanations/result-lines.ts';
import {tpuStatus} from '../../client/explanations/tpu-status.ts';
import {
  bytesText,
  type Column,
  counted,
  dollarText,
  durationText,
  numberText,
} from '../../client/text/format.ts';
import {featuresOf} from '../../client/views/feature.ts';
import {computedSamples, progressOf, unstoredText} from '../../client/views/pace.ts';
import type {RunPage, StatsView} from '../../client/views/run-page.ts';
import {endOf, streamCount, tookSeconds} from '../../client/views/run-state.ts';
import {layerNumbers} from '../../shared/contracts/spec/model-config.ts';
import type {RunSpec} from '../../shared/contracts/spec/spec.ts';
import {capped, networkOf} from '../../shared/domain/billing/network.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Stream} from '../../shared/domain/records/stream.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import type {Stats} from '../../shared/domain/run/result.ts';
import {type Cell, heatMap, layerMap} from '../html/charts.ts';
import {type Section, section} from '../html/feed.ts';
import {legend, streamGrid} from '../html/grid.ts';
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
} from '../html/html.ts';
import {sampleTexts} from '../html/tokens.ts';
import {runCommands} from './commands.ts';
import {eventList} from './events.ts';
import {historyCharts} from './history.ts';
import {rejectedLines} from './stream.ts';
import {sentence} from './why.ts';

/** A run with so few streams has a row for each; a larger one for those at work and those that failed. */
const FEW_STREAMS = 12;
const MOST_ROWS = 50;
const MOST_TPUS = 20;
const MOST_EVENTS = 40;

export function runPage(page: RunPage, now: number): Section[] {
  const {run} = page.state;
  const {head, samples, history, stats, spec} = runSections(page, now);
  const where = [section('output', run.total_shards > 0 ? output(page) : html``)];
  const isOver = endOf(run) !== null;
  return [
    section('head', head),
    ...(isOver ? where : []),
    section('samples', samples),
    section('history', history),
    section('streams', streams(page)),
    ...(isOver ? [] : where),
    section('features', run.total_shards > 0 ? features(run) : html``),
    section('tpus', tpus(page, now)),
    section('stats', stats),
    section('rejects', rejects(page)),
    section(
      'events',
      html`<h2>Events</h2>${eventList(page.events.slice(0, MOST_EVENTS))}<p>${link(`/events?run=${encodeURIComponent(run.run)}`, 'All events of the run')}</p>`,
    ),
    section('spec', spec),
    runCommands(run, exportCommand(run)),
  ];
}

export function runSections(page: RunPage, now: number) {
  return {
    samples: page.samples ? sampleTexts(page.samples) : html``,
    ...{head: head(page, now), history: historyCharts(page.state.run), spec: spec(page)},
    stats: page.stats?.stats && Object.keys(page.stats.stats).length > 0 ? statistics(page.stats) : html``,
  };
}

function head(
  {state: all, pace, why, result, usd_per_million_tokens, expires_from}: RunPage,
  now: number,
): Html {
  const {run, invalid} = all;
  const computed = computedSamples(all);
  const samples = [
    ...(computed > run.total_samples_processed ? [`${numberText(computed)} computed`] : []),
    ...(run.rejected_samples > 0 ? [`${numberText(run.rejected_samples)} rejected`] : []),
  ];
  const budget = run.budget_usd === null ? 'no budget' : `of ${dollarText(run.budget_usd)}`;
  const each =
    usd_per_million_tokens === null ? '' : `${dollarText(usd_per_million_tokens)} a million tokens`;
  const left = run.status === 'active' && pace.seconds_left !== null ? durationText(pace.seconds_left) : '–';
  const speed = pace.tokens_per_s > 0 ? `${numberText(Math.round(pace.tokens_per_s))} tokens/s` : '';
  const [end, took_s] = [endOf(run), tookSeconds(run)];
  const ended = end === null ? '' : html`, ended ${time(end, now)}`;
  return html`<h1>${run.run} ${state(run.status)}</h1>${lead(why, result)}<p class="quiet">Started ${time(run.created_at, now)}${ended}, on pool ${run.pool}</p>${figures(
    [
      took_s === null ? ['Time left', left, speed] : ['Took', durationText(took_s)],
      ['Cost', dollarText(capped(run)), budget],
      ['Samples stored', numberText(run.total_samples_processed), samples.join(', ')],
      ['Tokens', numberText(run.total_tokens), each],
      ['Shards', numberText(run.total_shards), bytesText(run.total_bytes)],
    ],
  )}${invalid.map(text => html`<p class="note">Not shown: ${text}</p>`)}${
    expires_from === null ? '' : html`<p class="quiet">Shards expire from ${time(expires_from, now)} on.</p>`
  }`;
}

/** Why it waits, or what a completed run has. */
function lead(why: RunPage['why'], result: RunPage['result']): Html {
  const [first, ...others] = result ? resultLines(result) : [];
  if (first === undefined) return sentence(why);
  return html`<p class="lead">${first}</p>${others.map(line => html`<p class="note">${line}</p>`)}`;
}

function streams({state}: RunPage): Html {
  const {run, streams} = state;
  const total = streamCount(state);
  const isWhole = streams.length >= total;
  // The document of the run has the counts of the last tick; the streams have their own state.
  const countOf = (status: Stream['status']) =>
    isWhole ? streams.filter(each => each.status === status).length : run[`streams_${status}`];
  const counts = {
    ...{completed: countOf('completed'), in_progress: countOf('in_progress')},
    ...{pending: countOf('pending'), failed: countOf('failed')},
  };
  if (total === 0)
    return html`<h2>Streams</h2>${empty('No stream yet. Upload streams into the folder of the run:', `gleaner streams upload streams ${run.run}`)}`;
  const share = (run.streams_completed + run.streams_failed) / total;
  return html`<h2>${counted(total, 'stream')}</h2>${legend(counts)}${
    isWhole ? streamGrid(streams) : html`<p>${bar(share, `${Math.floor(share * 100)} % have ended`)}</p>`
  }${total > FEW_STREAMS ? goTo(run) : ''}${streamTable(state)}`;
}

/** A stream by its number, because no page has a hundred thousand rows. */
function goTo({run}: Run): Html {
  return html`<form class="inline" action="${address('runs', run, 'stream')}" method="get"><label>Stream <input name="number" inputmode="numeric" pattern="[0-9]{1,9}" size="8" required></label> <button>Show</button></form>`;
}

function streamTable(state: RunPage['state']): Html {
  const rank = {failed: 0, in_progress: 1, pending: 2, completed: 3};
  const isSmall = state.streams.length <= FEW_STREAMS;
  const rows = state.streams
    .filter(({status}) => isSmall || status === 'failed' || status === 'in_progress')
    .toSorted((a, b) => (isSmall ? 0 : rank[a.status] - rank[b.status]) || a.worker_id - b.worker_id);
  if (rows.length === 0) return html``;
  const caption = isSmall ? 'Streams' : 'Streams that failed, and streams at work';
  return html`<details class="fold"><summary>${caption}</summary>${table(caption, streamColumns(state), rows.slice(0, MOST_ROWS))}${further(rows.length - MOST_ROWS, 'such streams')}</details>`;
}

/** Where the shards are, and the lines of Python that read them. */
function output({output, state: {run}}: RunPage): Html {
  return html`<h2>Output</h2><p>${counted(run.total_shards, 'shard')} of ${bytesText(run.total_bytes)} in <code>${output}</code></p><pre>${loadingLines(output, run).join('\n')}</pre>`;
}

/** Forms that lead to the page of a feature. */
function features(run: Run): Html {
  const number = (name: string) =>
    html`<label>${name} <input name="${name}" inputmode="numeric" pattern="[0-9]{1,9}" size="8" required></label>`;
  const forms = featuresOf(run).map(
    ({name}) =>
      html`<form class="inline" action="${address('runs', run.run, 'feature')}" method="get"><input type="hidden" name="name" value="${name}"><span>${name}</span> ${number('layer')} ${number('id')} <button>Show</button></form>`,
  );
  return forms.length > 0 ? html`<h2>Features</h2>${forms}` : html``;
}

export function loadingLines(folder: string, {spec}: Run): string[] {
  const {layer, name} = firstOutput(spec);
  const of = name ? `${layer}, "${name}"` : layer;
  const rows = [
    `for rows in run.layer(${of}):  # [rows, ${name ? 'width' : 'd_model'}], shard by shard; only this layer is read`,
    '    ...',
    `for batch in run.batches(${of}, batch_rows=4096, seed=0, as_="torch"):  # shuffled over the whole run`,
    '    ...',
  ];
  return [
    'import gleaner_reader  # pip install ./worker-startup/gleaner_reader',
    '',
    `run = gleaner_reader.open(${JSON.stringify(folder)})`,
    ...(name === 'moments' ? [`moments = run.moments(${layer})  # count, mean and variance`] : rows),
  ];
}

/** Writes one layer to files. Undefined for a run of moments alone. */
export function exportCommand({run, spec}: Run): string | undefined {
  const {layer, name} = firstOutput(spec);
  if (name === 'moments') return undefined;
  return `gleaner run export ${run} --layer ${layer}${name ? ` --site ${name}` : ''} --output layer-${layer}`;
}

/** A layer of the only site, of the first one of several, of the first reduction, or of moments. */
function firstOutput(spec: Run['spec']) {
  const {sites, features = [], project = [], moments, layers} = (spec ?? {}) as Partial<RunSpec>;
  const [entry] = sites?.length === 0 ? [...features, ...project, {...moments, name: 'moments'}] : [];
  const name = entry?.name ?? (sites && sites.length > 1 ? sites[0] : undefined);
  return {layer: layerNumbers(entry?.layers ?? layers ?? 'all', 1)[0] ?? 0, name};
}

function streamColumns({run: {run}, tpus}: RunPage['state']): Column<Stream, Part>[] {
  const workerOf = ({lease}: Stream) => tpus.find(({name}) => name === lease?.worker);
  const nameOf = ({stream, last_error}: Stream) => {
    const error = last_error ? html`<small class="reason">${last_error}</small>` : '';
    return html`${link(address('runs', run, 'streams', stream), stream)}${error}`;
  };
  const samplesOf = (stream: Stream) => {
    const {seen, total} = progressOf(stream, workerOf(stream));
    const share = total === null || stream.status === 'completed' ? null : total === 0 ? 1 : seen / total;
    const rejected = stream.rejected_samples > 0 ? `, ${numberText(stream.rejected_samples)} rejected` : '';
    const unstored = unstoredText(stream, workerOf(stream));
    const text = unstored ?? `${numberText(seen)}${total === null ? '' : ` of ${numberText(total)}`}`;
    return bar(share, `${text}${rejected}`);
  };
  const holderOf = (stream: Stream) => {
    const [name, activity] = [stream.lease?.worker, workerOf(stream)?.activity];
    return name && html`${link(address('tpus', name), name)}${activity ? ` ${activity}` : ''}`;
  };
  return [
    {title: 'Stream', cell: nameOf},
    {title: 'State', cell: ({status}) => state(status)},
    {title: 'Samples', cell: samplesOf},
    {title: 'Shards', cell: ({total_shards}) => numberText(total_shards), right: true},
    {title: 'Tokens', cell: ({total_tokens}) => numberText(total_tokens), right: true},
    {title: 'On', cell: holderOf},
  ];
}

function tpus({state: {run, tpus: all, work}}: RunPage, now: number): Html {
  const tpus = run.status === 'active' ? all : all.filter(({charged_to}) => charged_to === run.run);
  if (tpus.length === 0) {
    if (endOf(run) !== null) return html``;
    const text =
      run.status === 'active' ? 'No TPU now. The reason is at the top.' : 'No TPU: the run is paused.';
    return html`<h2>TPUs</h2><p class="quiet">${text}</p>`;
  }
  const workOf = ({name, work: own, activity}: Worker) =>
    `${work.get(name)?.stream ?? own ?? ''} ${activity ?? ''}`;
  const rateOf = ({tokens_per_s}: Worker) =>
    tokens_per_s === null ? '' : numberText(Math.round(tokens_per_s));
  const priceOf = ({usd_per_hour}: Worker) => (usd_per_hour === null ? '?' : dollarText(usd_per_hour));
  const columns: Column<Worker, Part>[] = [
    {title: 'TPU', cell: ({name}) => link(address('tpus', name), name)},
    {title: 'State', cell: worker => state(tpuStatus(worker))},
    {title: 'Works on', cell: workOf},
    {title: 'Since', cell: ({phase_since_at}) => time(phase_since_at, now), right: true},
    {title: 'Tokens/s', cell: rateOf, right: true},
    {title: '$/h', cell: priceOf, right: true},
  ];
  return html`<h2>${counted(tpus.length, 'TPU')}</h2>${table('TPUs of the run', columns, tpus.slice(0, MOST_TPUS))}${further(tpus.length - MOST_TPUS, 'TPUs')}`;
}

/** Activations whose largest value is so many times their mean norm are massive. */
const MASSIVE = 10;

/** Heat maps by layer and site. */
function statistics({of, stats, rows}: StatsView): Html {
  const map = (what: string, cellOf: (found: Stats) => Cell) => layerMap(`${what}, by layer`, stats, cellOf);
  const most = Math.max(...Object.values(stats).map(({norm}) => norm), Number.MIN_VALUE);
  const most_broken = Math.max(...Object.values(stats).map(({non_finite}) => non_finite));
  const massive = (ratio: number) => ({
    ...{shade: Math.min(1, ratio / MASSIVE), text: short(ratio), warns: ratio >= MASSIVE},
  });
  return html`<h2>Statistics of ${of}</h2>${[
    map('Mean norm', ({norm}) => ({shade: norm / most, text: short(norm)})),
    map('Largest value by mean norm', ({max_abs, norm}) => massive(norm > 0 ? max_abs / norm : 0)),
    map('Norm at 99 % of the rows by the median norm', ({norm_quantiles: [low, , middle, , high]}) => ({
      ...massive(middle > 0 ? high / middle : 0),
      more: `${short(low)} to ${short(high)}, median ${short(middle)}`,
    })),
    map('Share of zeros', ({zeros}) => ({shade: zeros, text: `${short(100 * zeros)} %`})),
    byPosition(stats),
    most_broken > 0
      ? map('Share of rows with a value that is not finite', ({non_finite}) => ({
          shade: non_finite / most_broken,
          text: `${short((100 * non_finite) / Math.max(1, rows))} %`,
          more: `${numberText(non_finite)} of ${numberText(rows)} rows`,
          warns: non_finite > 0,
        }))
      : html`<p class="quiet">Every value is finite.</p>`,
  ]}`;
}

/** Where the massive activations are: of each layer, the range of positions with its largest value. */
function byPosition(stats: Record<string, Stats>): Html {
  const found = Object.entries(stats).flatMap(([name, {norm, max_abs_by_position}]) => {
    const largest = Math.max(...max_abs_by_position, 0);
    return norm > 0 && largest >= MASSIVE * norm ? [{name, norm, largest: max_abs_by_position}] : [];
  });
  if (found.length === 0) return html``;
  const ranges = Math.max(...found.map(({largest}) => largest.length));
  const columns = Array.from({length: ranges}, (_, index) => positionRange(index));
  const rows = found.map(({name, norm, largest}) => ({
    name,
    cells: largest.map(value => ({
      shade: Math.min(1, value / norm / MASSIVE),
      text: short(value / norm),
      warns: value >= MASSIVE * norm,
    })),
  }));
  return heatMap('Largest value by mean norm, by position of the token', {columns, rows});
}

/** 0, 1, 2–3, 4–7 and so on. */
function positionRange(index: number): string {
  return index < 2 ? String(index) : `${2 ** (index - 1)}–${2 ** index - 1}`;
}

function short(value: number): string {
  return Math.abs(value) >= 1000 ? value.toExponential(1) : value.toPrecision(2);
}

function rejects({rejects, rejected, state: {run, streams}}: RunPage): Html {
  if (rejects.length === 0 && rejected.length === 0) return html``;
  const rejecting = streams.filter(({rejected_samples}) => rejected_samples > 0).length;
  return html`<h2>Rejected</h2>${rejected.length > 0 ? html`<ul class="plain">${rejected.map(({text}) => html`<li>${text}</li>`)}</ul>` : ''}${rejects.map(
    each => {
      const href = address('runs', run.run, 'streams', each.stream);
      return html`<h3>Stream ${link(href, each.stream)}</h3>${rejectedLines(each, href)}`;
    },
  )}${further(rejecting - rejects.length, 'streams with rejected lines')}`;
}

function spec({state: {run}, bill}: RunPage): Html {
  const more = [
    ['TPUs', dollarText(run.cost_usd)],
    ['Network between regions', dollarText(run.network_usd)],
    ['Downloads', dollarText(networkOf(run) - run.network_usd)],
    ['Operations', dollarText(bill.operations_usd)],
    ['Functions and Firestore', dollarText(bill.control_usd)],
    ['Storage a month', dollarText(bill.storage_usd_per_month)],
  ] as [string, string][];
  const text = run.spec === null ? null : JSON.stringify(run.spec, null, 2);
  return html`<h2>Spec and bill</h2>${figures(more)}${
    text === null
      ? html`<p class="quiet">The spec is frozen with the first stream.</p>`
      : html`<details><summary>Frozen spec ${run.spec_hash?.slice(0, 12) ?? ''}</summary><pre>${text}</pre></details>`
  }<p>${link(address('documents', 'runs', run.run), 'The document of the run')}</p>`;
}
