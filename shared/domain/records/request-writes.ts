import type {TimelineEvent} from '../timeline.ts';
import type {ExecHost} from './exec.ts';
import type {Job} from './job.ts';
import type {Run} from './run.ts';
import type {Stream} from './stream.ts';
import type {Worker} from './worker.ts';

export type WorkLease = {run: string; stream: string; epoch: number} | {job: string; epoch: number};

/** The documents that a decision changes. A missing field leaves its document as it is. */
export type RequestWrites = {
  worker?: Worker | undefined;
  /** Workers of the other slices of a job. */
  members?: Worker[];
  stream?: Stream;
  run?: Run;
  /** The run of a stream that failed for its machines or its model: a breaker may pause or end the run. */
  breaker?: {before: Run; after: Run};
  job?: Job;
  endedJob?: {before: Job; after: Job};
  execHost?: {exec: string; host: ExecHost};
  events?: TimelineEvent[];
  /** Events that repeat an event of this time or later replace it. */
  events_since?: number;
};
