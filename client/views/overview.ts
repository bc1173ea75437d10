/** Every run of the deployment with its jobs, its TPUs and its dollars, and what waits for a person. */
import {
  runRecords,
  servedRecord,
  skipIfInvalid,
  spendingRecords,
} from '../../shared/control-plane/documents/documents.ts';
import {livingInMonth, monthOf} from '../../shared/domain/billing/monthly-spending.ts';
import {capped} from '../../shared/domain/billing/network.ts';
import {parseJobWork, parseWork} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Store} from '../../shared/ports/ports.ts';
import type {Cloud} from '../cloud/cloud.ts';
import type {Entry} from '../events/entry.ts';
import {listRejected} from '../events/read.ts';
import {bytesText, type Column, dollarText, numberText} from '../text/format.ts';
import {complain} from '../text/output.ts';
import {viewDeployment} from './deployment.ts';
import {speedOf} from './pace.ts';
import {streamsOf} from './run-state.ts';
import {keptText, type Totals, totalsOf, tpuRow} from './tpus.ts';

/** A run in a list. `share`: of its streams, with those at work in part; null before the first count. */
export type RunLine = {
  run: Run;
  streams: number;
  share: number | null;
  tokens_per_s: number;
  seconds_left: number | null;
};

/** Columns of the runs. `state` and `reason` of a page have their own looks. */
export const runColumns = {
  run: {title: 'Run', cell: ({run}) => run.run},
  status: {title: 'Status', cell: ({run}) => run.status},
  streams: {title: 'Streams', cell: doneText},
  samples: {title: 'Samples', cell: ({run}) => numberText(run.total_samples_processed), right: true},
  rejected: {title: 'Rejected', cell: ({run}) => numberText(run.rejected_samples), right: true},
  shards: {title: 'Shards', cell: ({run}) => numberText(run.total_shards), right: true},
  size: {title: 'Size', cell: ({run}) => bytesText(run.total_bytes), right: true},
  cost: {title: 'Cost', cell: ({run}) => `${dollarText(capped(run))}${budgetText(run)}`, right: true},
  reason: {title: 'Reason', cell: ({run}) => run.reason ?? ''},
} satisfies Record<string, Column<RunLine>>;

/** `3 of 8, 1 failed`. */
export function doneText({run, streams}: RunLine): string {
  if (streams === 0) return 'not counted';
  const failed = run.streams_failed === 0 ? '' : `, ${numberText(run.streams_failed)} failed`;
  return `${numberText(run.streams_completed)} of ${numberText(streams)}${failed}`;
}

function budgetText({budget_usd}: Run): string {
  return budget_usd === null ? '' : ` of ${dollarText(budget_usd)}`;
}

/** `on`: the TPUs that run jobs. */
export type JobCounts = {waiting: number; running: number; on: string[]};

export type Overview = {
  at: string;
  runs: RunLine[];
  /** Documents of runs that cannot be read. */
  unreadable: number;
  jobs: JobCounts;
  /** Pools that keep TPUs without work. */
  kept: {pool: string; text: string}[];
  alerts: string[];
  /** The latest rejected objects that belong to no run of the list. */
  rejected: Entry[];
  totals: Totals;
  /** Dollars of this UTC month, living TPUs included. */
  month: {month: string; usd: number};
  /** Newest proof that ticks and messages come; null before the first. */
  proven_at: string | null;
};

export async function listRuns(store: Store): Promise<Run[]> {
  return runRecords.parseAll(await store.query('runs'), ({message}) => complain(message));
}

export async function readOverview(cloud: Cloud, now: number): Promise<Overview> {
  const {store, jobs, connection} = cloud;
  const {runs, pools, workers, alerts} = await viewDeployment(store, jobs, now);
  const stopped = await connection.stopped();
  const known = new Set(runs.map(({run}) => run));
  const kept = pools.flatMap(pool => {
    const text = keptText(pool, workers, now);
    return text === undefined ? [] : [{pool: pool.pool, text}];
  });
  return {
    at: iso(now),
    runs: runs.map(run => lineOf(run, workers)),
    unreadable: (await store.count('runs')) - runs.length,
    jobs: await countJobs(store, jobs, workers),
    kept,
    alerts: stopped ? [stopped, ...alerts] : alerts,
    rejected: await listRejected(cloud, name => name === null || !known.has(name)),
    totals: totalsOf(workers.map(worker => tpuRow(worker, pools, now))),
    month: await readMonth(store, workers, now),
    proven_at: (await servedRecord.read(() => {}, store)).proven_at,
  };
}

/** The time left assumes that the streams have about the same number of tokens. */
function lineOf(run: Run, workers: readonly Worker[]): RunLine {
  const streams = streamsOf(run);
  const parts = workers.flatMap(({work, samples_done, samples_total}) =>
    parseWork(work)?.run === run.run && samples_total ? (samples_done ?? 0) / samples_total : [],
  );
  const done =
    run.streams_completed +
    Math.min(
      run.streams_in_progress,
      parts.reduce((sum, part) => sum + part, 0),
    );
  const share = streams === 0 ? null : done / streams;
  const tokens_per_s = speedOf(run.run, workers);
  const isKnown = share !== null && share > 0 && tokens_per_s > 0 && run.total_tokens > 0;
  const seconds_left = isKnown ? (run.total_tokens * (1 - share)) / share / tokens_per_s : null;
  return {run, streams, share, tokens_per_s, seconds_left};
}

async function countJobs(store: Store, collection: string, workers: readonly Worker[]): Promise<JobCounts> {
  const by = (...value: string[]) => store.count(collection, [{field: 'status', op: 'in', value}]);
  const on = workers.flatMap(({phase, work, name}) =>
    phase !== 'gone' && parseJobWork(work) !== undefined ? [name] : [],
  );
  return {waiting: await by('pending', 'scheduled'), running: await by('running'), on};
}

async function readMonth(store: Store, workers: readonly Worker[], now: number): Promise<Overview['month']> {
  const spent = await skipIfInvalid(
    () => {},
    () => spendingRecords.get(store),
  );
  const name = monthOf(now);
  const {months = {}, copied_at = null} = spent ?? {};
  return {month: name, usd: (months[name] ?? 0) + livingInMonth({name, copied_at}, workers, now)};
}
