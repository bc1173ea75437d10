/** Progress of streams. */
import type {Stream} from '../../shared/domain/stream/stream.ts';
import type {Worker} from '../../shared/domain/worker/worker.ts';
import {counted, numberText} from '../terminal/format.ts';

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

/** `████████░░░░  62%`; empty without a known total. */
export function barText({seen, total}: Progress, width: number): string {
  if (total === null) return '';
  const share = total === 0 ? 1 : Math.min(1, seen / total);
  const full = Math.floor(share * width);
  return `${'█'.repeat(full)}${'░'.repeat(width - full)} ${String(Math.floor(share * 100)).padStart(3)}%`;
}

/** `1,240 samples, 5 shards, 2 rejected`. */
export function storedText(stream: Stream): string {
  const {total_samples_processed, total_shards, rejected_samples} = stream;
  const rejected = rejected_samples > 0 ? `, ${numberText(rejected_samples)} rejected` : '';
  return `${counted(total_samples_processed, 'sample')}, ${counted(total_shards, 'shard')}${rejected}`;
}
