/** Progress of streams, and the speed and the rest of a run. */
import {parseWork} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Stream} from '../../shared/domain/records/stream.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import {counted, durationText, numberText} from '../text/format.ts';
import type {RunState} from './run-state.ts';

/** Lines of a run by stream number, where they are known from elsewhere. */
export type Records = readonly number[];

export type Progress = {
  /** Samples that are stored or rejected, with those that a TPU has computed since. */
  seen: number;
  /** Samples of the stream; null before a TPU has counted them. */
  total: number | null;
};

/** Progress of a stream. `records`: its lines, where they are known from elsewhere. */
export function progressOf(stream: Stream, worker: Worker | undefined, records?: number): Progress {
  const stored = stream.last_processed_sample_idx + 1;
  if (stream.status === 'completed') return {seen: stored, total: stored};
  const isAtWork = worker !== undefined && stream.lease?.worker === worker.name;
  const total = records ?? (isAtWork ? worker.samples_total : null);
  const done = isAtWork ? Math.max(stored, worker.samples_done ?? 0) : stored;
  return {seen: total === null ? done : Math.min(done, total), total};
}

/** `seconds_left`: null before the first stored shard, and while no TPU works. */
export type Pace = {tokens_per_s: number; seconds_left: number | null};

export function paceOf(state: RunState, records: Records = []): Pace {
  const {run, tpus} = state;
  const tokens_per_s = speedOf(run.run, tpus);
  return {tokens_per_s, seconds_left: secondsLeft(state, tokens_per_s, records)};
}

/** `518 computed, 0 stored` of a stream with samples that are not stored yet; else null. */
export function unstoredText(stream: Stream, worker: Worker | undefined, records?: number): string | null {
  const {seen} = progressOf(stream, worker, records);
  const stored = numberText(stream.total_samples_processed);
  return seen > stream.last_processed_sample_idx + 1
    ? `${numberText(seen)} computed, ${stored} stored`
    : null;
}

/** Samples of the run that are stored, with those that its TPUs have computed since. */
export function computedSamples({run, tpus, work}: Pick<RunState, 'run' | 'tpus' | 'work'>): number {
  const ahead = tpus.map(worker => {
    const stream = work.get(worker.name);
    return stream ? progressOf(stream, worker).seen - stream.last_processed_sample_idx - 1 : 0;
  });
  return ahead.reduce((sum, samples) => sum + samples, run.total_samples_processed);
}

/** `2 TPUs still store the windows in hand, for about 17 s`; undefined where no TPU works for the run, and for a run that is not paused. */
export function drainText({run, status, spec}: Run, workers: readonly Worker[]): string | undefined {
  const draining = status === 'paused' ? workers.filter(({work}) => parseWork(work)?.run === run) : [];
  if (draining.length === 0) return undefined;
  const seconds = Number(spec?.window_tokens) / Math.min(...draining.map(each => each.tokens_per_s ?? 0));
  const time = Number.isFinite(seconds) ? `, for about ${durationText(seconds)}` : '';
  return `${counted(draining.length, 'TPU')} still store${draining.length === 1 ? 's' : ''} the windows in hand${time}`;
}

export function speedOf(run: string, tpus: readonly Worker[]): number {
  return tpus
    .filter(({work}) => parseWork(work)?.run === run)
    .reduce((sum, {tokens_per_s}) => sum + (tokens_per_s ?? 0), 0);
}

/** Seconds for the rest at the present speed; null before the first stored shard, and while no TPU works. */
function secondsLeft(state: RunState, tokens_per_s: number, records: Records): number | null {
  const {run, streams, tpus, work} = state;
  const isOpen = ({status}: Stream) => status === 'pending' || status === 'in_progress';
  const parts = streams.map(stream => {
    const worker = tpus.find(({name}) => work.get(name) === stream);
    return {stream, ...progressOf(stream, worker, records[stream.worker_id])};
  });
  const density = tokensPerByte(parts);
  if (tokens_per_s === 0 || density === null) return null;
  const tokens = streams.reduce((sum, {total_tokens}) => sum + total_tokens, 0);
  const samples = streams.reduce((sum, stream) => sum + stream.last_processed_sample_idx + 1, 0);
  const open = parts.filter(({stream}) => isOpen(stream));
  const seen = open.reduce(
    (sum, {stream, seen, total}) =>
      sum +
      (total === null
        ? Math.max(0, stream.size_bytes * density - stream.total_tokens)
        : (total - seen) * (tokens / samples)),
    0,
  );
  const unseen = run.streams_pending + run.streams_in_progress - open.length;
  const mean_bytes = streams.reduce((sum, {size_bytes}) => sum + size_bytes, 0) / streams.length;
  return (seen + Math.max(0, unseen) * mean_bytes * density) / tokens_per_s;
}

/** Tokens of a byte of the stored parts of streams whose samples are counted; null before the first stored shard. */
function tokensPerByte(parts: readonly {stream: Stream; total: number | null}[]): number | null {
  let [tokens, bytes] = [0, 0];
  for (const {stream, total} of parts) {
    if (!total) continue;
    tokens += stream.total_tokens;
    bytes += stream.size_bytes * Math.min(1, (stream.last_processed_sample_idx + 1) / total);
  }
  return bytes > 0 && tokens > 0 ? tokens / bytes : null;
}
