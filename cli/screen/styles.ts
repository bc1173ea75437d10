/** Colours of status words. */
import type {Run} from '../../shared/domain/records/run.ts';
import type {Stream} from '../../shared/domain/records/stream.ts';
import type {Style} from '../terminal/format.ts';
import type {TpuStatus} from './tpu-status.ts';

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
  cancelled: 'yellow',
};

export const STREAM_STYLES: Partial<Record<Stream['status'], Style>> = {completed: 'green', failed: 'red'};
