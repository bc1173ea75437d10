import type {TimelineEvent} from '../timeline.ts';
import type {ExecHost} from './exec.ts';
import type {Job} from './job.ts';
import type {Run} from './run.ts';
import type {Stream} from './stream.ts';
import type {Worker} from './worker.ts';

export type WorkLease = {run: string; stream: string; epoch: number} | {job: string; epoch: number};

/** The documents that a decision changes. A document without a field here is not changed. */
export type RequestWrites = {
  worker?: Worker | undefined;
  /** Workers of the other slices of a job. */
  members?: Worker[];
  stream?: Stream;
  run?: Run;
  /** The run of a stream that failed because of its machines or its model: a breaker may pause or end the run. */
  breaker?: {before: Run; after: Run};
  job?: Job;
  endedJob?: {before: Job; after: Job};
  execHost?: {exec: string; host: ExecHost};
  events?: TimelineEvent[];
  /** The new event replaces an equal one from this time or later. */
  events_since?: number;
};
