/** Facts that one tick plans with, each read once. An undefined part could not be read; the plan draws no conclusion from it. */

import type {Ceilings} from '../billing/ceilings.ts';
import type {BucketRegion} from '../billing/network.ts';
import type {Prices} from '../billing/prices.ts';
import type {WaitingJobs} from '../job/queue.ts';
import type {Pool} from '../records/pool.ts';
import type {Run, StreamTotals} from '../records/run.ts';
import type {Worker, Workers} from '../records/worker.ts';
import type {Zone} from '../records/zone.ts';
import type {Limits} from '../worker/limits.ts';
import type {Nodes} from '../worker/nodes.ts';
import type {Served} from '../worker/served-time.ts';
import type {PlacementLimits} from '../zone/placement.ts';

export type TickConfig = {
  limits: Limits;
  placement: PlacementLimits;
  ceilings: Ceilings;
  region: BucketRegion;
  bundle: string;
  lease_s: number;
};

/**
 * Cost of ended incarnations in this UTC month. If the document is invalid, `spent_usd` is undefined and `copied_usd` has the dollars of the
 * copy, including those of living TPUs. Both have the cost of each life until `copied_at`.
 */
export type Month = {
  name: string;
  copied_at: string | null;
  spent_usd: number | undefined;
  copied_usd?: number;
};

/** Nodes and money of the other pools, with which a pool shares the limits of the deployment. */
export type Others = {
  workers: readonly Worker[];
  /** Their nodes without a valid document, and the creates of the pools that were planned before. */
  nodes: number;
  /** Dollars of the month's budget that these nodes and creates need. */
  reserved_usd: number;
};

export const NO_OTHERS: Others = {workers: [], nodes: 0, reserved_usd: 0};

/**
 * Facts about one pool that a budget needs; no list of nodes. Pool and runs are read before the workers, so an incarnation that ends between
 * the two reads is counted once.
 */
export type BudgetSnapshot = {
  /** Time of the first read; a run or a worker may be newer. */
  read_at_ms: number;
  pool: Pool;
  /** True if the document of the pool could not be read: its nodes stay, and no node is created. */
  isUnreadable: boolean;
  /** Jobs of the pool that wait for a worker; undefined if they could not be counted. */
  jobs: WaitingJobs | undefined;
  others: Others;
  prices: Prices | undefined;
  month: Month | undefined;
  /** Count of all creates that were ever requested, and of those that earlier pools of the tick plan; and the earliest time of the next. */
  creates: number | undefined;
  creates_next_at: string | null;
  /** Pools that got no node in the last tick, because it was slow: they are planned first. */
  late_pools: readonly string[];
  /** `runs`: open runs. `ended`: ended runs whose streams are still leased to their last workers. */
  runs: readonly Run[];
  ended: readonly Run[];
  /** Names of runs whose documents could not be read: nobody knows how much work they have left, so their workers stay. */
  unreadable_runs: ReadonlySet<string>;
  /** Every worker that is not gone, and gone workers whose slot a message or a refusal keeps empty. */
  workers: Workers;
  unreadable: ReadonlySet<string>;
};

export type StreamCounts = {
  streams: number;
  unfinished: number;
  totals: StreamTotals;
  /** True if no unfinished stream has a valid document. */
  areAllOver: boolean;
  /** Slots with a bound unfinished stream of the run; empty for a run that any slot may work on. */
  slots: readonly string[];
  /** Time at which the count began; null for counts taken from the document of the run. */
  counted_ms: number | null;
};

export type Snapshot = BudgetSnapshot & {
  nodes: Nodes | undefined;
  zones: readonly Zone[] | undefined;
  servedTime: Served;
  /** By run; a run whose streams could not be counted is missing. */
  streams: ReadonlyMap<string, StreamCounts>;
  /** Workers that have been silent for six hours and stored no shard in that time. */
  lostWorkers: ReadonlySet<string>;
};

/** Facts about every pool of the deployment, each read once. The deployment's own pool is the first of `pools`. */
export type DeploymentBudgets = Omit<BudgetSnapshot, 'pool' | 'isUnreadable' | 'jobs' | 'others'> & {
  pools: readonly [Pool, ...Pool[]];
  unreadable_pools: ReadonlySet<string>;
  /** Waiting jobs by pool; a pool whose jobs could not be counted is missing. */
  jobs: ReadonlyMap<string, WaitingJobs>;
};

export type DeploymentSnapshot = DeploymentBudgets & Omit<Snapshot, keyof BudgetSnapshot>;
