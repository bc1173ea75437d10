/** The state of a run as one line, for output that is no terminal. */

import type {RunState} from '../../screen/read-run.ts';
import {streamCounts} from '../../screen/run-screen.ts';
import {tpuStatus} from '../../screen/tpu-status.ts';
import {bytesText, counted, dollarText} from '../../terminal/format.ts';

/** `my-run active  1,240 samples, 12 shards, 41 MB, $0.02; 8 streams: 3 completed …; 2 TPUs: 1 WORKING, 1 PREEMPT`. */
export function plainLine(state: RunState): string {
  const {run, tpus} = state;
  const {total_samples_processed, total_shards, total_bytes, cost_usd} = run;
  const stored = `${counted(total_samples_processed, 'sample')}, ${counted(total_shards, 'shard')}, ${bytesText(total_bytes)}`;
  const words = new Map<string, number>();
  for (const worker of tpus) words.set(tpuStatus(worker), (words.get(tpuStatus(worker)) ?? 0) + 1);
  const states = [...words].map(([word, count]) => `${count} ${word}`).join(', ');
  const fleet = `${counted(tpus.length, 'TPU')}${states ? `: ${states}` : ''}`;
  return `${run.run} ${run.status}  ${stored}, ${dollarText(cost_usd)}; ${streamCounts(state).text}; ${fleet}`;
}
