/** The documents of a deployment, and its alerts: documents that are left alone, silent TPUs, stopped creates, contradictions, old prices. */

import type {Log} from '../../shared/control-plane/calls/log.ts';
import {
  createsRecords,
  execRecords,
  poolRecords,
  runRecords,
  servedRecord,
  skipIfInvalid,
  spendingRecords,
  workerRecords,
  zoneRecords,
} from '../../shared/control-plane/documents/documents.ts';
import {jobRecords} from '../../shared/control-plane/documents/job-documents.ts';
import {readPrices} from '../../shared/control-plane/documents/prices.ts';
import {readTask, taskRecords} from '../../shared/control-plane/documents/tasks.ts';
import {LISTED_ON} from '../../shared/domain/billing/list-prices.ts';
import {ageText} from '../../shared/domain/billing/prices.ts';
import type {Limiter} from '../../shared/domain/records/limiter.ts';
import type {Pool} from '../../shared/domain/records/pool.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import type {Zone} from '../../shared/domain/records/zone.ts';
import {utcText} from '../../shared/domain/time.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {entriesOf} from '../events/entry.ts';
import {counted, dollarText} from '../text/format.ts';

function nameOf({zone, pool}: Pick<Zone, 'zone' | 'pool'>): string {
  return pool === null ? zone : `${zone}, for pool ${pool},`;
}

/** Documents of jobs, commands and tasks of each kind that are read: the newest. */
const MOST = 200;
/** Contradictions that are alerts: the newest of a week. Their events stay for 30 days. */
const CONTRADICTED_MS = 7 * 86_400_000;
const MOST_CONTRADICTIONS = 5;

/** The understood documents of a deployment, and what waits for a person. */
type DeploymentView = {runs: Run[]; pools: Pool[]; workers: Worker[]; alerts: string[]};

/**
 * Reads runs, pools and workers. `alerts`: sentences about documents that are left alone, about silent workers that a zone holds, and about
 * stopped creates, and about objects with other bytes. `jobs`: the collection of the jobs.
 */
export async function viewDeployment(store: Store, jobs: string, now = Date.now()): Promise<DeploymentView> {
  const newest = (field: string) => ({order_by: {field, direction: 'desc'}, limit: MOST}) as const;
  const alone: string[] = [];
  const note = ({message}: {message: string}) => void alone.push(message.replace('Failed to read ', ''));
  const zones = zoneRecords.parseAll(await store.query('zones'), note);
  const pools = poolRecords.parseAll(await store.query('pools'), note);
  const runs = runRecords.parseAll(await store.query('runs'), note);
  const workers = workerRecords.parseAll(await store.query('workers'), note);
  const ours = (await store.query(jobs, newest('updated_at'))).filter(({data}) => data.epoch !== undefined);
  jobRecords.parseAll(ours, note);
  execRecords.parseAll(await store.query('execs', newest('created_at')), note);
  taskRecords.parseAll(await store.query('tasks', newest('updated_at')), note);
  const log: Log = (_, message) => note({message});
  await skipIfInvalid(log, () => spendingRecords.get(store));
  await servedRecord.read(log, store);
  await createsRecords.read(log, store);
  const held = zones.flatMap(({zone, pool, silence_guard}) => {
    if (!silence_guard || silence_guard.held === 0) return [];
    const usd =
      silence_guard.held_usd_per_hour === null
        ? 'an unknown price'
        : dollarText(silence_guard.held_usd_per_hour);
    return `${nameOf({zone, pool})} holds ${counted(silence_guard.held, 'silent TPU')} for ${usd} an hour until a new TPU reports`;
  });
  const names = [...zones.map(nameOf), ...pools.map(({pool}) => `pool ${pool}`)];
  const limited = [...zones, ...pools].flatMap(
    ({limiter}, index) => limiterText(names[index] ?? '', limiter) ?? [],
  );
  const others = [...(await contradictions(store, now)), ...(await priceAlerts(store))];
  return {runs, pools, workers, alerts: [...alone, ...held, ...limited, ...others]};
}

/** A sentence about each object that was found with other bytes than were to be created, the newest first. */
async function contradictions(store: Store, now: number): Promise<string[]> {
  const where = [{field: 'kind', op: '==' as const, value: 'contradiction'}];
  const found = entriesOf(await store.query('events', {where, limit: MOST}), () => {});
  return found
    .filter(({at}) => now - Date.parse(at) < CONTRADICTED_MS)
    .sort((a, b) => b.at.localeCompare(a.at))
    .slice(0, MOST_CONTRADICTIONS)
    .map(({at, text}) => `${text} (${utcText(at)})`);
}

/** A sentence about a zone that refuses nodes, or about stopped creates; undefined where all wanted nodes are created. */
function limiterText(name: string, limiter: Limiter): string | undefined {
  const {state, cause, reason, since_at, next_at, failed_boots} = limiter;
  if (state === 'open') return undefined;
  const since = since_at === null ? '' : ` since ${utcText(since_at)}`;
  if (state === 'probing' && next_at !== null)
    return `${name} gives no TPU${since}, and is asked again after ${utcText(next_at)}: ${reason}`;
  const why =
    cause === 'boots' ? `${failed_boots} boots in a row failed, the last because ${reason}` : reason;
  return `creates of ${name} are stopped${since}: ${why}`;
}

/** A sentence about a refresh of the prices that failed, with the day of the oldest price in force. */
async function priceAlerts(store: Store): Promise<string[]> {
  const refresh = await skipIfInvalid(
    () => {},
    () => readTask(store, {task: 'prices', run: null}),
  );
  if (!refresh?.result?.startsWith('failed: ')) return [];
  const prices = Object.values(await readPrices({store, log: () => {}}, [{accelerator: ''}]));
  const [oldest = LISTED_ON] = prices.flatMap(price => price?.as_of ?? []).sort();
  const age = ageText(oldest, Date.now());
  return [
    `the prices of TPUs are of ${oldest}${age ? `, ${age}` : ''}: the refresh of ${refresh.created_at.slice(0, 10)} ${refresh.result}`,
  ];
}
