/** A run as a file to mail or to attach to a paper: its origin, its course, its content, how to load it, and its checks. */

import type {StoredComparison} from '../../cli/run/compared-manifest.ts';
import {comparedText, driftRows} from '../../cli/run/reference.ts';
import type {Report as Verified} from '../../cli/run/verify.ts';
import {bytesText, counted, dollarText, durationText, numberText} from '../../cli/terminal/format.ts';
import type {Life, Reason, Report} from '../../cli/views/report.ts';
import {endOf, streamCount, tookSeconds} from '../../cli/views/run.ts';
import {capped, networkOf} from '../../shared/domain/billing/network.ts';
import {outputsPrefix} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import {utcText} from '../../shared/domain/time.ts';
import {waterfall} from '../charts.ts';
import {figures, further, type Html, html, type Part, state, table} from '../html.ts';
import {runCharts} from '../pages/history.ts';
import {statisticMaps} from '../pages/run.ts';
import {exact, facts, file, line, part} from './frame.ts';
import {histogram, shares} from './plots.ts';

/** Streams from which on a histogram says more than their mean. */
const FEWEST_BINNED = 12;
/** Streams that the appendix lists. The digest has all. */
const MOST_STREAMS = 1000;
const MOST_FILES = 200;

/** `verified`: the report of `gleaner run verify`, where it was asked for. `compared`: what `--reference` of a verify stored. */
export type Made = {
  at: string;
  bucket: string;
  project: string;
  verified: Verified | null;
  compared: StoredComparison | null;
};

export function runReport(report: Report, made: Made): string {
  const {run} = report.page.state;
  return file({title: `Run ${run.run}`, at: made.at, made_by: `gleaner run report ${run.run}`}, [
    head(report, made),
    part('What was extracted', extracted(report, made)),
    part('How it went', course(report)),
    part('What is in it', content(report)),
    part('How to load it', loading(run, made)),
    part('How it was verified', verification(report, made)),
    part('Appendix', appendix(report)),
  ]);
}

function head({page}: Report, {bucket, project}: Made): Html {
  const {run} = page.state;
  const {total_samples_processed, rejected_samples, total_tokens, total_shards, total_bytes} = run;
  const end = endOf(run);
  const took_s = tookSeconds(run);
  return html`<header class="cover">
<p class="eyebrow">Activations of a language model</p>
<h1>${run.run} ${state(run.status)}</h1>
<p class="lead">${lead(run)}</p>
${run.reason ? html`<p class="note">${run.reason}</p>` : ''}
</header>
${figures([
  [
    'Samples',
    numberText(total_samples_processed),
    rejected_samples > 0 ? `${numberText(rejected_samples)} rejected` : '',
  ],
  ['Tokens', numberText(total_tokens)],
  ['Stored', bytesText(total_bytes), counted(total_shards, 'shard')],
  [
    'Cost',
    dollarText(capped(run)),
    page.usd_per_million_tokens === null ? '' : `${dollarText(page.usd_per_million_tokens)} a million tokens`,
  ],
  [
    'Took',
    took_s === null ? '–' : durationText(took_s),
    run.preemptions ? counted(run.preemptions, 'preemption') : '',
  ],
])}
<p class="quiet">${utcText(run.created_at)}${end === null ? '' : ` to ${utcText(end)}`} · <code class="exact">gs://${bucket}/${outputsPrefix(run.run).replace(/tpu_$/, '')}</code> · project ${project}</p>`;
}

/** The spec in one sentence. */
function lead({spec}: Run): string {
  if (!spec) return 'No stream was accepted yet, so the spec is not frozen.';
  const list = (value: unknown) => (Array.isArray(value) ? value.join(', ') : String(value ?? ''));
  const layers = spec.layers === 'all' ? 'every layer' : `layers ${list(spec.layers).replaceAll('-', '–')}`;
  const tokens = spec.tokens === 'all' ? 'every token' : `tokens ${list(spec.tokens)}`;
  return `${list(spec.sites)} at ${layers} of ${list(spec.model)}, for ${tokens}, as ${list(spec.dtype)}.`;
}

function extracted({page, dataset}: Report, {bucket}: Made): Html {
  const {run} = page.state;
  const model = page.result?.model ?? null;
  const versions = Object.entries(page.result?.versions ?? {}).map(
    ([name, of]) => `${name} ${of.join(' and ')}`,
  );
  return html`<h3>Model</h3>${facts([
    ['Name', exact(model?.name ?? String(run.spec?.model ?? ''))],
    ['Commit', exact(model?.revision ?? text(run.spec?.revision))],
    ['Weights', sha256(model?.weights_sha256)],
    ['Tokenizer', sha256(model?.tokenizer_sha256)],
  ])}${model ? '' : html`<p class="quiet">The checksums of the model stand in the manifest of a completed run.</p>`}
<h3>Dataset</h3>${facts([
    ['Streams', `${counted(streamCount(page.state), 'object')}, ${bytesText(dataset.bytes)}`],
    ['In', exact(`gs://${bucket}/datasets/${run.run === 'default' ? '' : `${run.run}/`}`)],
    [
      'Checksum',
      dataset.isWhole
        ? html`sha256 ${exact(dataset.digest)} <small>over a line “object crc32c” of each stream</small>`
        : 'the run has more streams than this report reads',
    ],
  ])}
<h3>Shards</h3>${facts([
    [
      'Digest',
      page.result?.digest
        ? html`${sha256(page.result.digest)} <small>of all shards; <code>gleaner-reader verify</code> compares it</small>`
        : 'the manifest of a completed run has it',
    ],
  ])}
<h3>Spec and code</h3>${facts([
    ['Spec', sha256(run.spec_hash)],
    ['Worker bundle', sha256((page.result?.code ?? []).join(' ') || run.bundle)],
    ['Versions', versions.join(', ')],
  ])}${specTable(run)}`;
}

function sha256(text: string | null | undefined): Part {
  return text ? html`sha256 ${exact(text)}` : '';
}

const text = (value: unknown) => (typeof value === 'string' ? value : null);

/** The keys of the spec that differ from nothing: nulls and empty lists say nothing. */
function specTable({spec}: Run): Html {
  const entries = Object.entries(spec ?? {}).flatMap(([name, value]) => flat(name, value));
  return html`<dl class="spec">${entries.map(
    ([name, value]) => html`<div><dt>${name}</dt><dd><code class="exact">${value}</code></dd></div>`,
  )}</dl>`;
}

function flat(name: string, value: unknown): [string, string][] {
  if (value === null || (Array.isArray(value) && value.length === 0)) return [];
  if (typeof value !== 'object' || Array.isArray(value)) return [[name, JSON.stringify(value)]];
  return Object.entries(value).flatMap(([key, inner]) => flat(`${name}.${key}`, inner));
}

function course({page, lives}: Report): Html {
  const {run} = page.state;
  return html`${runCharts(run)}${costs(page)}${lifeTable(lives)}${phaseBars(lives)}`;
}

function costs({state: {run}, bill}: Report['page']): Html {
  const parts: [string, number][] = [
    ['TPUs', run.cost_usd],
    ['Network between regions', run.network_usd],
    ['Downloads', networkOf(run) - run.network_usd],
    ['Operations of Cloud Storage', bill.operations_usd],
    ['Functions and Firestore', bill.control_usd],
  ];
  return html`<h3>Cost by part</h3>${shares(
    'Cost by part',
    parts.map(([name, usd]) => ({name, amount: usd, text: dollarText(usd)})),
  )}<p class="quiet">Budget: ${
    run.budget_usd === null ? 'none' : dollarText(run.budget_usd)
  }, compared with TPUs, network and downloads. The shards cost ${dollarText(bill.storage_usd_per_month)} in each month that they stay.</p>`;
}

/** Ends of lives in words. */
const ENDS: Record<string, string> = {
  taken: 'preempted or taken by Google',
  setup: 'never became usable',
  unheard: 'the host never spoke',
  boot: 'the boot failed',
  broken: 'the machine was broken',
  crashed: 'the agent crashed',
  silent: 'fell silent',
  hung: 'made no progress',
  asked: 'a person asked for it',
  'not-needed': 'no work was left',
};

function lifeTable(lives: readonly Life[]): Html {
  if (lives.length === 0)
    return html`<h3>TPUs</h3><p class="quiet">No life of a TPU has ended yet, or their records have expired.</p>`;
  const groups = [...Map.groupBy(lives, ({kind}) => kind)].sort(([, a], [, b]) => b.length - a.length);
  const rows = groups.map(([kind, of]) => [
    ENDS[kind] ?? kind,
    numberText(of.length),
    durationText(of.reduce((sum, {seconds}) => sum + seconds, 0)),
    dollarText(of.reduce((sum, {usd}) => sum + usd, 0)),
  ]);
  const tpus = new Set(lives.map(({tpu}) => tpu)).size;
  const columns = [
    {title: 'Ended because'},
    {title: 'Lives', number: true},
    {title: 'READY for', number: true},
    {title: 'Cost to the run', number: true},
  ];
  return html`<h3>${counted(lives.length, 'life', 'lives')} of ${counted(tpus, 'TPU')}</h3>${table('Ends of TPUs', columns, rows)}`;
}

function phaseBars(lives: readonly Life[]): Html {
  const sums = new Map<string, {seconds: number; usd: number}>();
  for (const {phases} of lives)
    for (const [name, {seconds, usd}] of Object.entries(phases)) {
      const sum = sums.get(name) ?? {seconds: 0, usd: 0};
      sums.set(name, {seconds: sum.seconds + seconds, usd: sum.usd + (usd ?? 0)});
    }
  if (sums.size === 0) return html``;
  const bars = [...sums].map(([name, {seconds, usd}]) => ({
    name,
    amount: seconds,
    texts: [durationText(seconds), usd > 0 ? dollarText(usd) : ''],
  }));
  return html`<h3>Where the time of these lives went</h3>${waterfall('Time of the TPUs by phase', bars)}`;
}

function content({page, dataset, reasons}: Report): Html {
  const {run} = page.state;
  const {result} = page;
  const samples = run.total_samples_processed;
  const mean = samples === 0 ? '' : `${numberText(Math.round(run.total_tokens / samples))} a sample`;
  const stored = dataset.streams.filter(({total_samples_processed}) => total_samples_processed > 0);
  const lengths = stored.map(stream => stream.total_tokens / stream.total_samples_processed);
  return html`${figures([
    ['Samples', numberText(samples)],
    ['Tokens', numberText(run.total_tokens), mean],
    ...(result ? [['Rows', numberText(result.rows)] as [string, Part]] : []),
    ...(result && result.truncated > 0
      ? [['Truncated', numberText(result.truncated)] as [string, Part]]
      : []),
    ['Rejected', numberText(run.rejected_samples)],
  ])}${lengths.length >= FEWEST_BINNED ? histogram('Mean tokens of a sample, by stream', lengths, value => numberText(Math.round(value))) : ''}${rejected(run, reasons)}<h3>Statistics${page.stats && !result ? ` of ${page.stats.of}` : ''}</h3>${
    page.stats
      ? statisticMaps(page.stats)
      : html`<p class="quiet">The manifest of a completed run has the statistics of each layer.</p>`
  }`;
}

function rejected(run: Run, {most, others, unread}: Report['reasons']): Html {
  if (run.rejected_samples === 0) return html`<h3>Rejected</h3><p>No sample was rejected.</p>`;
  const share = (samples: number) =>
    `${((100 * samples) / Math.max(1, run.rejected_samples)).toFixed(samples === run.rejected_samples ? 0 : 1)} %`;
  const rows = most.map(({reason, samples, first}: Reason) => [
    reason,
    numberText(samples),
    share(samples),
    `stream ${first.stream}, line ${numberText(first.line)}`,
  ]);
  const columns = [
    {title: 'Reason'},
    {title: 'Samples', number: true},
    {title: 'Share', number: true},
    {title: 'First', number: true},
  ];
  const rest = [
    ...(others > 0 ? [`${numberText(others)} samples have other reasons`] : []),
    ...(unread > 0 ? [`the rejected lines of ${counted(unread, 'stream')} are not read here`] : []),
  ];
  return html`<h3>Rejected</h3>${table('Rejected samples by reason', columns, rows)}${rest.length > 0 ? html`<p class="quiet">${rest.join('; ')}.</p>` : ''}`;
}

function loading(run: Run, {bucket}: Made): Html {
  const {spec} = run;
  const layer = firstLayer(spec?.layers);
  const folder = `gs://${bucket}/activations${run.run === 'default' ? '' : `/${run.run}`}`;
  const lines = [
    'import gleaner_reader  # pip install ./worker-startup/gleaner_reader',
    '',
    `run = gleaner_reader.open("${folder}")`,
    `for rows in run.layer(${layer}):  # [rows, d_model], shard by shard; only this layer is read`,
    '    ...',
    `for batch in run.batches(${layer}, batch_rows=4096, seed=0, as_="torch"):  # shuffled over the whole run`,
    '    ...',
  ];
  return html`<pre>${lines.join('\n')}</pre><p class="quiet">Each shard is a ${text(spec?.format) ?? 'safetensors'} file with the index, the tokens and the rows of its samples. ${line(`gleaner run export ${run.run} --layer ${layer} --output layer-${layer}`)} writes one layer to files.</p>`;
}

/** The first layer of `"all"`, `"4-7"` or `[4, 5]`. */
function firstLayer(layers: unknown): number {
  const first = Array.isArray(layers) ? layers[0] : String(layers).split('-')[0];
  return Number.isInteger(Number(first)) ? Number(first) : 0;
}

function verification({page}: Report, {verified, compared}: Made): Html {
  const {run} = page.state;
  const always = html`<ul class="plain checks">
<li>A shard is created whole and never replaced. Its metadata names its stream, its samples, the hash of the spec and the lease.</li>
<li>Shards count only without a gap, so each sample is stored once, or rejected with a reason.</li>
<li>A TPU that continued a stream compared the stored shards with its plan first.</li>
</ul>`;
  if (!verified)
    return html`${always}${drifts(compared)}<p>This file was made without reading the shards again: ${line(`gleaner run report ${run.run} --verify`)} does so.</p>`;
  const {ok, samples, stored_once, missing, doubled, different, rejected} = verified;
  return html`<p class="verdict">${state(ok ? 'verified' : 'not verified', ok ? 'good' : 'bad')}: every stream and every shard was read again for this file.</p>${figures(
    [
      ['Samples', numberText(samples)],
      ['Stored once', numberText(stored_once)],
      ['Rejected', numberText(rejected), 'with a reason'],
      ['Missing', numberText(missing)],
      ['Doubled', numberText(doubled)],
      ['Different', numberText(different), 'from the stream'],
    ],
  )}${verified.problems.map(problem => html`<p class="note">${problem}</p>`)}${always}${drifts(compared)}`;
}

/** How far the stored rows are from transformers. */
function drifts(compared: StoredComparison | null): Html {
  if (!compared) return html``;
  const number = (title: string) => ({title, number: true});
  const columns = [
    {title: 'Layer'},
    number('Relative error'),
    number('Cosine'),
    number('Worst row'),
    {title: 'Place'},
  ];
  return html`<h3>Compared with transformers</h3><p>${comparedText(compared)}, at ${utcText(compared.at)}.</p>${table(
    'Drift of each layer',
    columns,
    driftRows(compared),
  )}`;
}

function appendix({page, dataset}: Report): Html {
  const rows = dataset.streams
    .slice(0, MOST_STREAMS)
    .map(
      ({
        stream,
        size_bytes,
        crc32c,
        total_samples_processed,
        rejected_samples,
        total_tokens,
        total_shards,
      }) => [
        stream,
        bytesText(size_bytes),
        exact(crc32c),
        ...[total_samples_processed, rejected_samples, total_tokens, total_shards].map(numberText),
      ],
    );
  const number = (title: string) => ({title, number: true});
  const columns = [
    {title: 'Stream'},
    number('Size'),
    {title: 'CRC-32C'},
    ...['Samples', 'Rejected', 'Tokens', 'Shards'].map(number),
  ];
  const files = Object.entries(page.result?.model?.files ?? {});
  return html`<h3>Streams</h3>${table('Streams with their checksums', columns, rows)}${further(dataset.streams.length - MOST_STREAMS, 'streams')}${
    files.length === 0
      ? ''
      : html`<h3>Files of the model</h3>${table(
          'Files of the model',
          [{title: 'File'}, {title: 'Digest'}],
          files.slice(0, MOST_FILES).map(([name, digest]) => [exact(name), exact(digest)]),
        )}`
  }<h3>Frozen spec</h3><pre>${JSON.stringify(page.state.run.spec, null, 2)}</pre>`;
}
