/** The screen of a run: its TPUs, its totals, its streams and its cost, as lines for a width and a height. */

import {type TpuStatus, tpuStatus} from '../../client/explanations/tpu-status.ts';
import {aligned, bytesText, counted, dollarText, durationText, numberText} from '../../client/text/format.ts';
import type {StyledLine} from '../../client/text/output.ts';
import {
  computedSamples,
  drainText,
  type Progress,
  paceOf,
  progressOf,
  type Records,
  unstoredText,
} from '../../client/views/pace.ts';
import {usdPerMillionTokens} from '../../client/views/rates.ts';
import {type RunState, streamCount} from '../../client/views/run-state.ts';
import {capped, networkOf} from '../../shared/domain/billing/network.ts';
import {parseJobWork, parseWork} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Stream} from '../../shared/domain/records/stream.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import {RUN_STYLES, STREAM_STYLES, TPU_STYLES} from './styles.ts';

export type Size = {width: number; height: number};

const WIDE = 60;
const FULL = 80;

/** `my-run  active`, with the reason. */
export function headLine({run, workers}: RunState): StyledLine {
  const reason = [run.reason, drainText(run, workers)].filter(Boolean).join('; ');
  const text = `${run.run}  ${run.status}${reason && `: ${reason}`}`;
  return {text, style: RUN_STYLES[run.status] ?? 'bold'};
}

/** TPUs with the totals of the run below. A narrow screen leaves out columns, the pool of a name and the word stream. */
export function tpuLines(state: RunState, {width, height}: Size): StyledLine[] {
  const {run, tpus, work} = state;
  const isFull = width >= FULL;
  const fitting = <T>(cells: T[]) =>
    cells.filter((_, column) => column < 3 || (width >= WIDE && (isFull || column !== 4)));
  const shown = tpus.slice(0, Math.max(1, height));
  const rows = shown.map(worker => {
    const stream = work.get(worker.name);
    const [stored, shards] = [stream?.total_samples_processed ?? 0, stream?.total_shards ?? 0];
    return [
      ...[isFull ? worker.name : worker.name.slice(worker.pool.length + 1), tpuStatus(worker)],
      ...[samplesText(worker, stream), numberText(stored), numberText(shards)],
      isFull ? workText(worker, run) : workText(worker, run).replace(/^stream /, ''),
    ];
  });
  const stored = [run.total_samples_processed, run.total_shards].map(numberText);
  const [head = '', ...others] = aligned(
    [
      ['TPU NAME', 'STATUS', 'COMPUTED', 'STORED', 'SHARDS', 'WORK'],
      ...rows,
      ['TOTALS', '', numberText(computedSamples(state)), ...stored, bytesText(run.total_bytes)],
    ].map(fitting),
    fitting([false, false, true, true, true, false]),
  );
  const body = others.slice(0, -1).map((text, index) => {
    const worker = shown[index];
    return {text, style: worker ? TPU_STYLES[tpuStatus(worker)] : undefined};
  });
  const left = tpus.length - shown.length;
  return [
    {text: head, style: 'dim' as const},
    ...body,
    ...(tpus.length === 0 ? [{text: 'no TPU', style: 'dim' as const}] : []),
    ...(left > 0 ? [{text: `… ${counted(left, 'further TPU')}`, style: 'dim' as const}] : []),
    {text: others.at(-1) ?? '', style: 'bold' as const},
  ];
}

function samplesText({samples_done, samples_total}: Worker, stream: Stream | undefined): string {
  if (!stream) return '0';
  const done = numberText(samples_done ?? stream.last_processed_sample_idx + 1);
  return samples_total === null ? done : `${done}/${numberText(samples_total)}`;
}

/** `stream 007 (compiling)`, with the run of another one. */
function workText({work, activity}: Worker, {run}: Run): string {
  const [stream, job] = [parseWork(work), parseJobWork(work)];
  const doing = activity ? ` (${activity})` : '';
  if (stream) return `${stream.run === run ? '' : `${stream.run}, `}stream ${stream.stream}${doing}`;
  return job === undefined ? (activity ?? '') : `job ${job}${doing}`;
}

/** `Healthy: 2  Working: 1  Needs Recovery: 0`: READY or at work; at work; lost. */
export function summaryLine({tpus}: RunState): StyledLine {
  const words = tpus.map(tpuStatus);
  const count = (...wanted: TpuStatus[]) => words.filter(word => wanted.includes(word)).length;
  const lostTpus = count('PREEMPTED', 'MISSING');
  const text = `Healthy: ${count('READY', 'WORKING', 'DRAINING')}  Working: ${count('WORKING', 'DRAINING')}  Needs Recovery: ${lostTpus}`;
  return {text, style: lostTpus > 0 ? 'red' : undefined};
}

/** `8 streams: 3 completed, 2 in progress, 3 pending`. */
export function streamCounts(state: RunState): StyledLine {
  const {streams_completed, streams_in_progress, streams_pending, streams_failed} = state.run;
  const parts = Object.entries({
    completed: streams_completed,
    'in progress': streams_in_progress,
    pending: streams_pending,
    failed: streams_failed,
  });
  const words = parts.filter(([, count]) => count > 0).map(([word, count]) => `${numberText(count)} ${word}`);
  const text = `${counted(streamCount(state), 'stream')}${words.length > 0 ? `: ${words.join(', ')}` : ''}`;
  return {text, style: streams_failed > 0 ? 'red' : undefined};
}

/** Streams with bars: those at work first, then failed, waiting and completed ones, in the order of their numbers. */
export function streamLines(state: RunState, {width, height}: Size, records: Records = []): StyledLine[] {
  const rank = {in_progress: 0, failed: 1, pending: 2, completed: 3};
  const sorted = [...state.streams].sort(
    (a, b) => rank[a.status] - rank[b.status] || a.worker_id - b.worker_id,
  );
  const isAll = sorted.length <= height;
  const shown = isAll
    ? state.streams
    : sorted.slice(0, Math.max(0, height - 1)).sort((a, b) => a.worker_id - b.worker_id);
  const left = streamCount(state) - shown.length;
  return [
    ...shown.map(stream => streamLine(stream, state.tpus, width, records[stream.worker_id])),
    ...(left > 0 && height > 0
      ? [{text: `… ${counted(left, 'further stream')}`, style: 'dim' as const}]
      : []),
  ];
}

/** `stream 007 ████░░░░  62%  1,240 samples, 5 shards  in_progress on tpu-us-central1-a-0 (running)`. */
export function streamLine(
  stream: Stream,
  tpus: readonly Worker[],
  width: number,
  records?: number,
): StyledLine {
  const worker = tpus.find(({name}) => name === stream.lease?.worker);
  const bar = barText(
    progressOf(stream, worker, records),
    width >= WIDE ? Math.min(24, Math.floor(width / 5)) : 8,
  );
  const waits = worker?.waits_for ? `, waiting for ${worker.waits_for}` : '';
  const doing = worker?.activity ? ` (${worker.activity}${waits})` : '';
  const on = stream.lease ? ` on ${stream.lease.worker}${doing}` : '';
  const why = stream.last_error ? `: ${stream.last_error}` : '';
  const stored = storedText(stream, worker, records);
  const parts = [`stream ${stream.stream}`, bar, stored, `${stream.status}${on}${why}`];
  return {text: parts.filter(part => part !== '').join('  '), style: STREAM_STYLES[stream.status]};
}

/** `████████░░░░  62%`; empty without a known total. */
function barText({seen, total}: Progress, width: number): string {
  if (total === null) return '';
  const share = total === 0 ? 1 : Math.min(1, seen / total);
  const full = Math.floor(share * width);
  return `${'█'.repeat(full)}${'░'.repeat(width - full)} ${String(Math.floor(share * 100)).padStart(3)}%`;
}

/** `1,240 samples, 5 shards, 2 rejected`; `518 computed, 0 stored, 0 shards`. */
function storedText(stream: Stream, worker: Worker | undefined, records?: number): string {
  const {total_samples_processed, total_shards, rejected_samples} = stream;
  const rejected = rejected_samples > 0 ? `, ${numberText(rejected_samples)} rejected` : '';
  const samples = unstoredText(stream, worker, records) ?? counted(total_samples_processed, 'sample');
  return `${samples}, ${counted(total_shards, 'shard')}${rejected}`;
}

/** `$0.02 of $1.00, $0.05 a million tokens; 1,240 tokens/s, about 3.0 min left`. */
export function costLine(state: RunState, records: Records = []): StyledLine {
  const {run} = state;
  const budget = run.budget_usd === null ? ' without a budget' : ` of ${dollarText(run.budget_usd)}`;
  const rate = usdPerMillionTokens(run);
  const each = rate === null ? '' : `, ${dollarText(rate)} a million tokens`;
  const {tokens_per_s, seconds_left} = paceOf(state, records);
  const pace = tokens_per_s > 0 ? `; ${numberText(Math.round(tokens_per_s))} tokens/s` : '';
  const left = seconds_left === null ? '' : `, about ${durationText(seconds_left)} left`;
  const network_usd = networkOf(run);
  const network = network_usd === 0 ? '' : `, ${dollarText(network_usd)} of it for network`;
  return {text: `${dollarText(capped(run))}${budget}${network}${each}${pace}${left}`};
}
