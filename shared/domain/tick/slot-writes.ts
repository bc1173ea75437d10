/** Documents that a decision about slots reads, and what it writes. */
import type {Job} from '../records/job.ts';
import type {Stream} from '../records/stream.ts';
import type {Worker} from '../records/worker.ts';
import type {TimelineEvent} from '../timeline.ts';
import type {WorkerAttempt} from '../worker/attempt.ts';
import type {Limits} from '../worker/limits.ts';
import type {WorkerAction} from '../worker/transitions.ts';
import type {PlacementLimits} from '../zone/placement.ts';
import type {SharedDocuments} from './shared-documents.ts';
import type {PlanInputs} from './slots.ts';

export type SlotSettings = {limits: Limits; placement: PlacementLimits; bundle: string; logs_bucket: string};

/** `stream`, `job`: leased to an incarnation that ends. `suspectStream`: the one that the worker lost when it fell silent. */
export type Work = {
  stream: Stream | undefined;
  job: Job | undefined;
  suspectStream: Stream | undefined;
  members?: readonly Worker[];
};

/** `works`: by name of the worker. `attempts`: records of ended incarnations, by their path. */
export type SlotDocuments = {
  shared: SharedDocuments;
  works: ReadonlyMap<string, Work>;
  attempts: ReadonlyMap<string, WorkerAttempt>;
};

export type SlotWrites = {
  workers: Worker[];
  attempts: Map<string, WorkerAttempt>;
  /** Streams that are released or charged, by run and stream. */
  streams: Map<string, Stream>;
  jobs: {before: Job; ended: Job}[];
  shared: SharedDocuments;
  /** Incarnations whose nodes are gone: their bill is due. */
  endedWorkers: Worker[];
  events: TimelineEvent[];
  /** Pools and zones whose creates stop. */
  stops: {worker: string; text: string}[];
  actions: WorkerAction[];
  heldWorkers: Worker[];
  freedStreams: Stream[];
  /** True if a zone gives nodes again: the next tick requests the remaining ones. */
  isOpened: boolean;
  /** Slots whose request is dropped, because the plan is too old. */
  lateSlots: string[];
};

export type Context = {documents: SlotDocuments; inputs: PlanInputs; settings: SlotSettings; now: number};
