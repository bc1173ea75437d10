/** The estimate that `run start` prints: from the records that its checks have read, or from the sizes of the model and the streams. */
import {modelSizes} from '../../../shared/contracts/model-config.ts';
import type {RunSpec, RunSpecInput} from '../../../shared/contracts/spec.ts';
import type {Checked} from '../../checks/run.ts';
import type {Cloud} from '../../cloud/cloud.ts';
import type {StreamFolder} from '../../streams/folder.ts';
import {dollarText} from '../../terminal/format.ts';
import {completeIn} from '../spec.ts';
import {type Sampled, times} from './assumptions.ts';
import {reportOf} from './estimate.ts';
import type {Report} from './report.ts';
import {reportLines} from './report-lines.ts';

type Sizes = {streams: number; stream_bytes: number};

/** The estimate of a run, or why there is none. */
export async function estimateStart(
  cloud: Cloud,
  input: RunSpecInput,
  {run, folder, checked}: {run: string; folder: StreamFolder | undefined; checked: Checked},
): Promise<Report | string> {
  const spec = completeIn(cloud, input);
  if (!folder) return `the streams are in the bucket; \`gleaner estimate ${run}\` reads a sample of them`;
  const stream_bytes = folder.streams.reduce((sum, {bytes}) => sum + bytes, 0);
  const sizes = {streams: folder.streams.length, stream_bytes};
  const {sampled, config, line_bytes} = checked;
  const isText = line_bytes !== undefined && !folder.streams.some(({gzip}) => gzip);
  const bySizes = () => (isText && config ? sampledBySizes(config, spec, sizes, line_bytes) : undefined);
  const all = sampled ? scaled(sampled, sizes) : bySizes();
  if (!all) return 'sizes alone do not tell it; `gleaner estimate` reads a sample';
  return reportOf(cloud, {what: `run ${run}`, input, sampled: all}, {});
}

/** The lines of an estimate that a person needs before a start. */
export function startLines(report: Report, budget_usd: number | null, now: number): string[] {
  const wanted = /^ {2}(warning|samples|tokens|bytes|speed|time|dollars|earlier) /;
  const budget = budget_usd === null ? 'no budget' : `budget ${dollarText(budget_usd)}`;
  const lines = reportLines(report, now).filter(line => wanted.test(line));
  return ['Estimate:', ...lines.map(line => (line.startsWith('  dollars') ? `${line}; ${budget}` : line))];
}

/** The counts of some streams for all of them, by bytes. */
function scaled(sampled: Sampled, {streams, stream_bytes}: Sizes): Sampled {
  const factor = stream_bytes / sampled.stream_bytes;
  const {totals, computed_tokens, generated_tokens, operations} = sampled;
  const all = Object.entries(totals).map(([name, span]) => [name, times(span, factor)]);
  return {
    ...sampled,
    ...{streams, stream_bytes, exact: sampled.exact && streams === sampled.streams},
    totals: Object.fromEntries(all) as Sampled['totals'],
    ...{computed_tokens: computed_tokens * factor, generated_tokens: generated_tokens * factor},
    operations: operations * factor,
  };
}

const RESIDUAL = ['resid_pre', 'resid_mid', 'resid_post', 'attn_out', 'mlp_out', 'mlp_in'];
const VALUE_BYTES = {bf16: 2, fp16: 2, fp32: 4, int8: 1};
/** Bytes of a token of text: English has about four, other languages and code fewer. */
const TOKEN_BYTES = {estimate: 4, low: 8, high: 2};

/** Counts without a tokenizer, by the bytes of the streams; undefined where other sizes than those of the residual stream decide. */
export function sampledBySizes(
  config: string,
  {model, revision, layers, sites, tokens, dtype, generate, shard_size_gb}: RunSpec,
  {streams, stream_bytes}: Sizes,
  line_bytes: number,
): Sampled | undefined {
  const sizes = modelSizes(config);
  if (!sizes || generate || !sites.every(site => RESIDUAL.includes(site))) return undefined;
  const chosen = layersOf(layers, sizes.layers);
  const row_bytes =
    chosen.length * sites.length * sizes.d_model * VALUE_BYTES[dtype as keyof typeof VALUE_BYTES];
  const of = (divisor: typeof TOKEN_BYTES) => ({
    estimate: Math.round(stream_bytes / divisor.estimate),
    low: Math.round(stream_bytes / divisor.low),
    high: Math.round(stream_bytes / divisor.high),
  });
  const samples = of({estimate: line_bytes, low: 2 * line_bytes, high: line_bytes / 2});
  const all = of(TOKEN_BYTES);
  const rows = tokens === 'last' || tokens === 'mean' || tokens === 'max' ? samples : all;
  const shard_bytes = times(rows, row_bytes);
  const shards = Math.max(streams, Math.ceil(shard_bytes.estimate / (shard_size_gb * 1e9)));
  const none = {estimate: 0, low: 0, high: 0};
  const deepest_layer = Math.max(...chosen);
  return {
    model: {name: model, revision, family: 'by its sizes', d_model: sizes.d_model},
    ...{layers: chosen.length, deepest_layer, model_layers: sizes.layers, row_bytes, streams, stream_bytes},
    exact: false,
    sample: {blocks: 0, lines: 0, bytes: 0},
    totals: {
      ...{lines: samples, samples, rejected: none, truncated: none, tokens: all, rows, shard_bytes},
      shards: {estimate: shards, low: streams, high: null},
    },
    ...{computed_tokens: all.estimate, generated_tokens: 0, reject_reasons: []},
    operations: 2 * sizes.block_weights * (deepest_layer + 1) * all.estimate,
    warnings: [
      'no tokenizer was read: a token is taken for 4 bytes of the streams, and `gleaner estimate` counts',
    ],
  };
}

function layersOf(layers: RunSpec['layers'], count: number): number[] {
  if (Array.isArray(layers)) return [...new Set(layers)];
  const [first = 0, last = count - 1] = layers === 'all' ? [] : layers.split('-').map(Number);
  return Array.from({length: last - first + 1}, (_, number) => first + number);
}
