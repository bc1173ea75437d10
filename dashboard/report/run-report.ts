import {comparedText, driftColumns} from '../../client/explanations/compared-text.ts';
import type {StoredComparison} from '../../client/json/compared-manifest.ts';
import type {Answers} from '../../client/json/index.ts';
import {
  bytesText,
  type Column,
  counted,
  dollarText,
  durationText,
  numberText,
} from '../../client/text/format.ts';
import type {Life, Report} from '../../client/views/report.ts';
import {streamCount} from '../../client/views/run-state.ts';
import {ENDS} from '../../client/views/tpus.ts';
import {outputsPrefix} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Stream} from '../../shared/domain/records/stream.ts';
import {utcText} from '../../shared/domain/time.ts';
import {facts, figures, further, type Html, html, type Part, state, table} from '../html/html.ts';
import {exportCommand, loadingLines, runSections} from '../pages/run-page.ts';
import {exact, file, line, part, still} from './frame.ts';

/** Streams that the appendix lists. The digest has all. */
const MOST_STREAMS = 1000;
const MOST_FILES = 200;

/** `verified`: the report of `gleaner run verify`, where it was asked for. `compared`: what `--reference` of a verify stored. */
export type Made = {
  at: string;
  bucket: string;
  project: string;
  verified: Answers['run verify'] | null;
  compared: StoredComparison | null;
};

export function runReport(report: Report, made: Made): string {
  const {run} = report.page.state;
  const {head, samples, history, stats, spec} = runSections(report.page, Date.parse(made.at));
  return file({title: `Run ${run.run}`, at: made.at, made_by: `gleaner run report ${run.run}`}, [
    ...[head, samples, history, stats, spec].map(still),
    part('Origin', origin(report, made)),
    part('Verification', verification(report, made)),
    part('Appendix', appendix(report)),
  ]);
}

const text = (value: unknown) => (typeof value === 'string' ? value : null);

/** What was extracted, by its checksums, and how to load it. */
function origin({page, dataset}: Report, {bucket, project}: Made): Html {
  const {run} = page.state;
  const {model, digest, code = [], versions = {}, truncated = 0} = page.result ?? {};
  const at_completion = 'in the manifest of a completed run';
  const folder = `gs://${bucket}/${outputsPrefix(run.run).replace(/\/?tpu_$/, '')}`;
  const values: [name: string, value: Part][] = [
    ['Model', exact(model?.name ?? text(run.spec?.model))],
    ['Commit', exact(model?.revision ?? text(run.spec?.revision))],
    ['Weights', sha256(model?.weights_sha256) || at_completion],
    ['Tokenizer', sha256(model?.tokenizer_sha256)],
    ['Streams', `${counted(streamCount(page.state), 'object')}, ${bytesText(dataset.bytes)}`],
    ['In', exact(`gs://${bucket}/datasets/${run.run === 'default' ? '' : `${run.run}/`}`)],
    [
      'Checksum',
      dataset.isWhole
        ? html`${sha256(dataset.digest)} <small>over a line “object crc32c” of each stream</small>`
        : 'the run has more streams than this report reads',
    ],
    ['Shards', html`${exact(folder)}, project ${project}`],
    ['Digest', digest ? html`${sha256(digest)} <small>of all shards</small>` : at_completion],
    ['Spec', sha256(run.spec_hash)],
    ['Worker bundle', sha256(code.join(' ') || run.bundle)],
    ['Tokens of a sample', lengths(run, dataset)],
    ['Truncated samples', truncated > 0 ? numberText(truncated) : ''],
    [
      'Versions',
      Object.entries(versions)
        .flatMap(([name, of]) => `${name} ${of.join(' and ')}`)
        .join(', '),
    ],
  ];
  const exporting = exportCommand(run);
  return html`${facts(values)}<h3>How to load it</h3><pre>${loadingLines(folder, run).join('\n')}</pre><p class="quiet">Each shard is a ${text(run.spec?.format) ?? 'safetensors'} file with the index, the tokens and the rows of its samples.${exporting ? html` ${line(exporting)} writes one layer to files.` : ''}</p>`;
}

function lengths({total_tokens, total_samples_processed}: Run, {streams}: Report['dataset']): string {
  if (total_samples_processed === 0) return '';
  const counting = streams.filter(stream => stream.total_samples_processed > 0);
  const means = counting.map(stream => stream.total_tokens / stream.total_samples_processed);
  const [mean, ...range] = [
    ...[total_tokens / total_samples_processed, Math.min(...means), Math.max(...means)],
  ].map(value => numberText(Math.round(value)));
  return `${mean} on average${means.length > 1 ? `, ${range.join(' to ')} by stream` : ''}`;
}

function sha256(digest: string | null | undefined): Part {
  return digest ? html`sha256 ${exact(digest)}` : '';
}

function verification({page}: Report, {verified, compared}: Made): Html {
  const {run} = page.state;
  const rules = html`<ul class="plain">
<li>A shard is created whole and never replaced. Its metadata names its stream, its samples, the hash of the spec and the lease.</li>
<li>Shards count only without a gap, so each sample is stored once, or rejected with a reason.</li>
<li>A TPU that continued a stream compared the stored shards with its plan first.</li>
</ul>${drifts(compared)}`;
  if (!verified)
    return html`${rules}<p>This file was made without reading the shards again: ${line(`gleaner run report ${run.run} --verify`)} does so.</p>`;
  const {ok, samples, stored_once, missing, doubled, different, rejected, problems} = verified;
  const counts = {samples, stored_once, rejected, missing, doubled, different};
  const named = Object.entries(counts).map(([name, count]): [string, string] => [
    name.replace('_', ' '),
    numberText(count),
  ]);
  return html`<p class="lead">${state(ok ? 'verified' : 'not verified', ok ? 'good' : 'bad')}: every stream and every shard was read again for this file.</p>${figures(named)}${problems.map(problem => html`<p class="note">${problem}</p>`)}${rules}`;
}

function drifts(compared: StoredComparison | null): Html {
  if (!compared) return html``;
  const rows = table('Drift of each layer', Object.values(driftColumns), Object.entries(compared.drift));
  return html`<h3>Compared with transformers</h3><p>${comparedText(compared)}, at ${utcText(compared.at)}.</p>${rows}`;
}

const FILE_COLUMNS: Column<[name: string, digest: string], Part>[] = [
  {title: 'File', cell: ([name]) => exact(name)},
  {title: 'Digest', cell: ([, digest]) => exact(digest)},
];

function appendix({page, dataset, lives, reasons}: Report): Html {
  const files = Object.entries(page.result?.model?.files ?? {}).slice(0, MOST_FILES);
  const columns: Column<Stream, Part>[] = [
    {title: 'Stream', cell: ({stream}) => stream},
    {title: 'Size', cell: ({size_bytes}) => bytesText(size_bytes), right: true},
    {title: 'CRC-32C', cell: ({crc32c}) => exact(crc32c)},
    {title: 'Samples', cell: each => numberText(each.total_samples_processed), right: true},
    {title: 'Rejected', cell: ({rejected_samples}) => numberText(rejected_samples), right: true},
    {title: 'Tokens', cell: ({total_tokens}) => numberText(total_tokens), right: true},
    {title: 'Shards', cell: ({total_shards}) => numberText(total_shards), right: true},
  ];
  return html`${rejected(page.state.run, reasons)}${livesOf(page.state.run, lives)}<h3>Streams</h3>${table('Streams with their checksums', columns, dataset.streams.slice(0, MOST_STREAMS))}${further(dataset.streams.length - MOST_STREAMS, 'streams')}${
    files.length === 0
      ? ''
      : html`<h3>Files of the model</h3>${table('Files of the model', FILE_COLUMNS, files)}`
  }`;
}

function rejected(run: Run, {most, others, unread}: Report['reasons']): Html {
  if (run.rejected_samples === 0) return html`<h3>Rejected</h3><p>No sample was rejected.</p>`;
  const columns: Column<Report['reasons']['most'][number]>[] = [
    {title: 'Reason', cell: ({reason}) => reason},
    {title: 'Samples', cell: ({samples}) => numberText(samples), right: true},
    {
      title: 'First',
      cell: ({first}) => `stream ${first.stream}, line ${numberText(first.line)}`,
      right: true,
    },
  ];
  return html`<h3>Rejected</h3>${table('Rejected samples by reason', columns, most)}${further(others, 'samples with other reasons')}${further(unread, 'streams whose rejected lines are not read here')}`;
}

type Phase = NonNullable<Life['phases'][keyof Life['phases']]>;

function livesOf({preemptions}: Run, lives: readonly Life[]): Html {
  const ends = Map.groupBy(lives, ({kind}) => ENDS[kind]?.[1] ?? kind);
  const phases = Map.groupBy(
    lives.flatMap(life => Object.entries(life.phases)),
    ([name]) => `of this: ${name.replaceAll('_', ' ')}`,
  );
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  const rows: [name: string, count: string, spans: readonly {seconds: number; usd?: number | null}[]][] = [
    ...[...ends].map(([name, of]): [string, string, Life[]] => [name, numberText(of.length), of]),
    ...[...phases].map(([name, of]): [string, string, Phase[]] => [name, '', of.map(([, phase]) => phase)]),
  ];
  const columns: Column<(typeof rows)[number]>[] = [
    {title: 'Ended because', cell: ([name]) => name},
    {title: 'Lives', cell: ([, count]) => count, right: true},
    {title: 'READY for', cell: ([, , of]) => durationText(sum(of.map(({seconds}) => seconds))), right: true},
    {title: 'Cost to the run', cell: ([, , of]) => dollarText(sum(of.map(({usd}) => usd ?? 0))), right: true},
  ];
  const tpus = new Set(lives.map(({tpu}) => tpu)).size;
  return html`<h3>${counted(lives.length, 'ended life', 'ended lives')} of ${counted(tpus, 'TPU')}${preemptions === null ? '' : `, ${counted(preemptions, 'preemption')}`}</h3>${
    lives.length === 0
      ? html`<p class="quiet">No life of a TPU has ended yet, or their records have expired.</p>`
      : table('Ends of TPUs', columns, rows)
  }`;
}
