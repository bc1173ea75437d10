/** The TPUs of the deployment: each as a row, their sums, and one with its earlier attempts. */

import {
  attemptRecords,
  poolRecords,
  runRecords,
  workerRecords,
} from '../../shared/control-plane/documents/documents.ts';
import {accrue, KEPT, payerOf, totalOf} from '../../shared/domain/billing/cost.ts';
import {paths} from '../../shared/domain/names.ts';
import {waitText} from '../../shared/domain/records/constraint.ts';
import {keptBy, type Pool} from '../../shared/domain/records/pool.ts';
import {hasEnded, type Worker} from '../../shared/domain/records/worker.ts';
import {utcText} from '../../shared/domain/time.ts';
import type {Store} from '../../shared/ports/ports.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {type Fleet, readFleet, requirePool} from '../cloud/fleet.ts';
import {explainTpu} from '../explanations/explain.ts';
import {tpuStatus} from '../explanations/tpu-status.ts';
import {rowOf} from '../json/fields.ts';
import type {Answers} from '../json/index.ts';
import {type Attempt, attempt, tpu} from '../json/tpus.ts';
import {counted, dollarText} from '../text/format.ts';
import {say} from '../text/output.ts';

/** Fields of a TPU. `is_billed`: its node exists, as far as ticks can tell. `cost_usd`: dollars of this incarnation until now. */
export type TpuRow = Listed['tpus'][number];
type Listed = Answers['tpus list'];
export type Totals = Listed['totals'];

export function tpuRow(worker: Worker, pools: readonly Pool[], now: number): TpuRow {
  const pool = pools.find(({pool}) => pool === worker.pool);
  const why = explainTpu(worker, pool, now);
  return rowOf(tpu, {
    ...worker,
    tpu: worker.name,
    status: tpuStatus(worker),
    accelerator: pool?.accelerator ?? null,
    since_at: worker.phase_since_at,
    is_billed: worker.ready_at !== null && worker.phase !== 'gone',
    cost_usd: totalOf(accrue(worker, now).costs),
    reason: why ? waitText(why) : null,
    last_error: errorOf(worker, pool),
  });
}

/** The last error of a TPU, unless it is healed: the zone that refused the TPU gives TPUs again, or nothing waits for one. */
function errorOf(worker: Worker, pool: Pool | undefined): string | null {
  if (worker.refused && !pool?.zones_wait[worker.zone]) return null;
  return worker.last_error ?? (hasEnded(worker) ? worker.last_death : null);
}

/** Sums over TPUs that are not gone. A TPU of unknown price adds nothing to the dollars. */
export function totalsOf(rows: readonly TpuRow[]): Totals {
  const living = rows.filter(({phase}) => phase !== 'gone');
  const billed = living.filter(({is_billed}) => is_billed);
  return {
    tpus: living.length,
    working: living.filter(({work}) => work !== null).length,
    billed: billed.length,
    usd_per_hour: billed.reduce((sum, {usd_per_hour}) => sum + (usd_per_hour ?? 0), 0),
    unknown_prices: billed.filter(({usd_per_hour}) => usd_per_hour === null).length,
  };
}

/** `3 TPUs, 2 at work, $2.40 an hour`. */
export function totalsText({tpus, working, usd_per_hour, unknown_prices}: Totals): string {
  const unknown =
    unknown_prices === 0 ? '' : `, and the price of ${counted(unknown_prices, 'TPU')} is unknown`;
  return `${counted(tpus, 'TPU')}, ${working} at work, ${priceOfHour(usd_per_hour)} an hour${unknown}`;
}

/** Every digit of a price, so that the prices of a list add up to the sum below it. */
export function priceOfHour(usd: number): string {
  return `$${usd.toLocaleString('en-US', {minimumFractionDigits: 2, maximumFractionDigits: 5})}`;
}

/** `$1.20 an hour`, or that the price is unknown. */
export function hourText(usd_per_hour: number | null): string {
  return usd_per_hour === null ? 'unknown price' : `${dollarText(usd_per_hour)} an hour`;
}

/** The TPUs of a pool and a zone, gone ones included. Throws `CliError` for an unknown pool. */
export async function readTpus(
  cloud: Cloud,
  {pool, zone}: {pool?: string | undefined; zone?: string | undefined},
  now: number,
): Promise<TpuRow[]> {
  const fleet = await readFleet(cloud);
  if (pool !== undefined) requirePool(fleet, pool);
  const isMeant = (each: Worker) =>
    (pool === undefined || each.pool === pool) && (zone === undefined || each.zone === zone);
  return fleet.workers.filter(isMeant).map(worker => tpuRow(worker, fleet.pools, now));
}

/** Why no TPU is there: the reason of each run and of the jobs that wait for one. */
export async function whyNone(store: Store, pool?: string): Promise<{text: string; waits: boolean}[]> {
  const isMeant = (each: {pool: string}) => pool === undefined || each.pool === pool;
  // The document of a run that is over keeps its last reason.
  const runs = runRecords
    .parseAll(await store.query('runs'), () => {})
    .filter(each => isMeant(each) && each.status === 'active');
  const pools = poolRecords.parseAll(await store.query('pools'), () => {}).filter(isMeant);
  const waits = [
    ...runs.flatMap(({run, waits}) => (waits ? `run ${run} waits: ${waitText(waits)}` : [])),
    ...pools.flatMap(({pool, jobs_wait}) =>
      jobs_wait ? `jobs of pool ${pool} wait: ${waitText(jobs_wait)}` : [],
    ),
  ];
  if (waits.length > 0) return waits.map(text => ({text: `no TPU: ${text}`, waits: true}));
  const isNew = runs.some(({streams_pending}) => streams_pending > 0);
  const text = isNew ? 'no TPU: the next tick creates some' : 'no TPU: TPUs are created when there is work';
  return [{text, waits: false}];
}

/** A TPU as a whole. `attempts`: its newest ended incarnations. */
export type TpuView = {row: TpuRow; worker: Worker; attempts: Attempt[]};

/** `fleet`: the pools and workers of the deployment. Undefined for a TPU without a document. */
export async function readTpu(
  {store}: Pick<Cloud, 'store'>,
  name: string,
  fleet: Pick<Fleet, 'pools' | 'workers'>,
  now: number,
): Promise<TpuView | undefined> {
  const worker = fleet.workers.find(each => each.name === name) ?? (await workerRecords.get(store, name));
  if (!worker) return undefined;
  return {row: tpuRow(worker, fleet.pools, now), worker, attempts: await attemptsOf(store, name)};
}

const MOST_ATTEMPTS = 20;

/** Ends of an incarnation by the kind of its cause: the evidence, and the end in a report. */
export const ENDS: Record<string, [evidence: string, end: string]> = {
  taken: ['certain: Cloud TPU reported it', 'preempted or taken by Google'],
  setup: ['certain: the node never became usable', 'never became usable'],
  unheard: ['likely: the host never reported', 'the host never reported'],
  boot: ['certain: its agent never started', 'the boot failed'],
  broken: ['certain: the machine cannot work', 'the machine was broken'],
  crashed: ['certain: its agent reported it', 'the agent crashed'],
  silent: ['likely: the agent stopped reporting', 'fell silent'],
  hung: ['likely: the agent made no progress', 'made no progress'],
  asked: ['certain: a message asked for it', 'a person asked for it'],
  'not-needed': ['certain: no work was left', 'no work was left'],
};

/** The newest ended incarnations, the newest first. An invalid document is named and left out. */
export async function attemptsOf(store: Store, tpu: string): Promise<Attempt[]> {
  const order_by = {field: 'incarnation', direction: 'desc'} as const;
  const stored = await store.query(`${paths.worker(tpu)}/attempts`, {order_by, limit: MOST_ATTEMPTS});
  const found = attemptRecords.parseAll(stored, ({message}) => say(message));
  return found.map(each =>
    rowOf(attempt, {...each, evidence: ENDS[String(each.cause_kind)]?.[0] ?? 'unknown'}),
  );
}

/** `keeps 1 TPU until 2026-01-02 15:20:00 UTC: 1 without work at $1.20 an hour`; undefined for a pool that keeps no TPU now. */
export function keptText(pool: Pool, workers: readonly Worker[], now: number): string | undefined {
  const keptCount = keptBy(pool, now);
  if (keptCount === 0 || !pool.keep) return undefined;
  const idle = workers.filter(
    worker => worker.pool === pool.pool && !hasEnded(worker) && payerOf(worker) === KEPT,
  );
  const usd = idle.reduce((sum, {usd_per_hour}) => sum + (usd_per_hour ?? 0), 0);
  const cost = idle.length > 0 ? `: ${idle.length} without work at ${dollarText(usd)} an hour` : '';
  return `keeps ${counted(keptCount, 'TPU')} until ${utcText(pool.keep.until_at)}${cost}`;
}
