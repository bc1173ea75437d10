/** What the invariants read of a world. */
import type {Config} from '../../../shared/contracts/settings/config.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import type {FakeBucket} from '../../world/bucket.ts';
import type {Chance, Clockwork} from '../../world/clock.ts';
import type {SimStore} from '../../world/store.ts';
import type {FakeTpus} from '../../world/tpus.ts';
import type {Faults} from '../conditions/faults.ts';
import type {PartName} from '../conditions/parts.ts';
import type {Code} from '../planting/code.ts';

/**
 * Course of a job in its agent. `works` and `fails` end after some seconds. `endless` ends at its timeout. `stuck` is never
 * reported. `deadly` kills its machine. `restarts` ends its agent, which starts again. `broken` cannot start.
 * `invalid` is no valid document.
 */
export type Course = 'works' | 'fails' | 'endless' | 'stuck' | 'deadly' | 'restarts' | 'broken' | 'invalid';

/** `isBounded`: the job has a deadline or a budget. */
export type Submitted = {course: Course; max_retries: number; isDeleted: boolean; isBounded?: boolean};

/** Parts of the context of a world; context.ts describes each. */
export type Facts = {
  readonly clockwork: Clockwork;
  readonly store: SimStore;
  readonly objects: FakeBucket;
  readonly tpus: FakeTpus;
  readonly config: Config;
  readonly tpuConstraint: Code['tpuConstraint'] | undefined;
  readonly options: {crashes?: ReadonlySet<number>};
  readonly receiver: object | undefined;
  readonly rise: {since_ms: number; seen_ms: number; hours(from_ms: number, to_ms: number): number};
  readonly storm: Faults;
  readonly faults: Faults;
  readonly alone: Map<string, Document>;
  readonly everAlone: ReadonlySet<string>;
  readonly aged: ReadonlySet<string>;
  readonly touched: ReadonlySet<string>;
  readonly streams: ReadonlyMap<string, string[]>;
  readonly contents: ReadonlyMap<string, string>;
  readonly submitted: ReadonlyMap<string, Submitted>;
  readonly messages: ReadonlyMap<string, Document>;
  readonly hasMonthBudget: boolean;
  readonly hasSecondPool: boolean;
  readonly hasSlices: boolean;
  readonly isCalm: boolean;
  readonly isResynced: boolean;
  isDangerous: boolean;
  isSettled(longer_ms?: number): boolean;
  isTooLate(run: Document | undefined, object: string): boolean;
  runs(): Set<string>;
  drawsOf(part: PartName): Chance | undefined;
  see(name: string): void;
  after(delay_ms: number, run: () => void): void;
};
