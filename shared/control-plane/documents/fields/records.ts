/** Meaning of the fields of events, control messages, tasks and single documents, for docs/firestore.md. */
import type {TimelineEvent} from '../../../domain/timeline.ts';
import type {Served} from '../../../domain/worker/served-time.ts';
import type {Task} from '../tasks.ts';

const KEPT = 'Firestore deletes the document some time after this: 30 days after its time.';

export const eventFields: Record<keyof TimelineEvent | 'at' | 'expire_at', string> = {
  kind: 'Subject of the event: `run`, `stream`, `shard`, `worker`, `zone`, `rejected`, `control`, `job` or `exec`.',
  text: 'The event as a sentence.',
  run: 'Run of the event; absent if it concerns none.',
  stream: 'Stream of the event; absent if it concerns none.',
  worker: 'TPU of the event; absent if it concerns none.',
  job: 'Job of the event; absent if it concerns none.',
  exec: 'Command of the event; absent if it concerns none.',
  epoch: 'Epoch of the lease that the event is about; absent without one.',
  message_id: 'Control message that the event is about; absent without one.',
  object: 'Object that the event is about; absent without one.',
  at: 'Time of the event. Sort by this field.',
  expire_at: KEPT,
};

export const controlFields = {
  outcome: '`applied` or `rejected`.',
  reason: 'What was done, or why the message was rejected.',
  message: 'The message as it arrived, cut after 4,000 characters.',
  run: 'Run of the message; absent if it names none.',
  stream: 'Stream of the message; absent if it names none.',
  worker: 'TPU of the message; absent if it names none.',
  pool: 'Pool of the message; absent if it names none.',
  job: 'Job of the message; absent if it names none.',
  published_at: 'Publish time, which orders messages; null if unknown.',
  at: 'Time at which the message was decided.',
  expire_at: 'Firestore deletes the document some time after this.',
};

type KnownKeys<T> = keyof {[K in keyof T as string extends K ? never : K]: T[K]};

export const taskFields: Record<KnownKeys<Task>, string> = {
  task: 'Kind of the task: `register`, `rebuild`, `resync`, `finish` or `totals`.',
  run: 'Run of the task; null for all runs.',
  status: '`open` while pages are left, then `done`.',
  cursor: 'JSON of the place where the next delivery continues; empty at the first page.',
  result: 'Summary of the task; null without one.',
  busy_until_at:
    'End of the time that a delivery has claimed the task for; null while no delivery works on it.',
  created_at: 'Time at which the task was opened last.',
  updated_at: 'Time of the last page.',
  expire_at: 'Firestore deletes the document some time after this: 30 days after it was opened.',
};

export const foldFields = {
  format: 'Version of the form of `state`.',
  after: 'Last stream that is folded in; empty at the start.',
  generation: 'Generation of the manifest at the start of the fold; null without one.',
  state: 'JSON of the result so far.',
  updated_at: 'Time of the last page.',
};

export const servedFields: Record<keyof Served, string> = {
  proven_at:
    'Newest proof that messages arrive. Time after it counts against no TPU. Null before the first proof.',
  gaps: 'Intervals without proofs, oldest first: `from_at`, `to_at`. Silence in a gap counts against no TPU.',
  failed_pings: 'Pings of the tick in a row that failed.',
  failing_since_at: 'Time of the first failed ping in a row; else null.',
};

export const spendingFields = {
  months: 'Dollars of ended incarnations by UTC month, such as `{"2026-11": 12.5}`.',
};

export const createsFields = {
  creates: 'Creates that were ever requested. A plan sees by it what other ticks requested.',
};
