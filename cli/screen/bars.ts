/** Progress of streams, as lines of a terminal. */
import type {Stream} from '../../shared/domain/stream/stream.ts';
import {counted, numberText} from '../terminal/format.ts';
import type {Progress} from '../views/pace.ts';

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
