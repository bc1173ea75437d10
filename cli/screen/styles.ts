/** Colours of status words. */

import type {TpuStatus} from '../../client/explanations/tpu-status.ts';
import type {Style} from '../../client/text/format.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Stream} from '../../shared/domain/records/stream.ts';

export const TPU_STYLES: Partial<Record<TpuStatus, Style>> = {
  PREEMPTED: 'red',
  MISSING: 'red',
  WORKING: 'green',
  STARTING: 'yellow',
};

export const RUN_STYLES: Partial<Record<Run['status'], Style>> = {
  completed: 'green',
  failed: 'red',
  paused: 'yellow',
  stopped: 'yellow',
};

export const STREAM_STYLES: Partial<Record<Stream['status'], Style>> = {completed: 'green', failed: 'red'};
