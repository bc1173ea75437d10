/** A scene of the benchmark: work on a world, and the measurement of that work. */
import type {BucketUsage} from './bucket.ts';
import type {Usage} from './meter.ts';
import type {World} from './world.ts';

export type Work = {
  run: () => Promise<unknown>;
  /** Equal parts of the work. All figures are for one part. */
  times?: number;
  /** Prepares a further round. The fastest round is reported, because other work on the machine only adds time. */
  again?: () => Promise<void>;
  rounds?: number;
  /** Counts that are subtracted. */
  less?: Usage;
  /** Known when the work is done. */
  facts?: () => {worst?: number; note?: string};
};

/** Prepares the world. Its preparation is not measured. */
export type Scene = (world: World) => Promise<Work>;

export type Measured = {
  what: string;
  seconds: number;
  /** Processor time: other work on the machine does not count. */
  cpu_s: number;
  usage: Usage;
  bucket: BucketUsage;
  /** Messages. */
  published: number;
  /** Memory of the whole process, its preparation included. */
  peak_mb: number;
  times: number;
  /** Documents of the worst part. */
  worst?: number;
  note?: string;
};

/** Measurements of the ticks and messages that end a fleet. */
export type Ended = {
  what: string;
  /** Messages that finish the run. */
  messages: number;
  longest_message_s: number;
  /** Seconds from the start of the first tick. */
  first_delete_s: number;
  last_delete_s: number;
  /** TPUs that each tick deletes. */
  deletes: number[];
  peak_mb: number;
};
