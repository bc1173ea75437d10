import {Rejected} from '../../shared/contracts/errors.ts';
import {completedManifest, MAX_MANIFEST_BYTES} from '../../shared/contracts/manifest.ts';
import {parseJson} from '../../shared/contracts/schemas.ts';
import {
  createsRecords,
  poolRecords,
  runRecords,
  servedRecord,
  skipIfInvalid,
  spendingRecords,
  streamRecords,
  workerRecords,
  zoneRecords,
} from '../../shared/control-plane/documents/documents.ts';
import {execRecords} from '../../shared/control-plane/documents/exec-documents.ts';
import {jobRecords} from '../../shared/control-plane/documents/job-documents.ts';
import {readPrices} from '../../shared/control-plane/documents/prices.ts';
import {readTask, taskRecords} from '../../shared/control-plane/documents/tasks.ts';
import type {Log} from '../../shared/control-plane/log.ts';
import {LISTED_ON} from '../../shared/domain/billing/list-prices.ts';
import {ageText} from '../../shared/domain/billing/prices.ts';
import type {Pool} from '../../shared/domain/fleet/pool.ts';
import {manifestObject, paths} from '../../shared/domain/names.ts';
import type {RunResult} from '../../shared/domain/run/result.ts';
import type {Run} from '../../shared/domain/run/run.ts';
import type {Stream} from '../../shared/domain/stream/stream.ts';
import {utcText} from '../../shared/domain/time.ts';
import type {Worker} from '../../shared/domain/worker/worker.ts';
import type {Limiter} from '../../shared/domain/zone/limiter.ts';
import type {Zone} from '../../shared/domain/zone/placement.ts';
import type {Objects, Store} from '../../shared/ports.ts';
import {type Entry, entriesOf} from '../events/entry.ts';
import {counted, dollarText} from '../terminal/format.ts';
import {complain} from '../terminal/output.ts';

/** Documents of a run. */
export type RunView = {
  run: Run;
  streams: Stream[];
  workers: Worker[];
  /** Events about uploaded objects that the run rejected, with the reason. */
  rejected: Entry[];
};

const skip = ({message}: Error) => complain(message);

export async function listRuns(store: Store): Promise<Run[]> {
  return runRecords.parseAll(await store.query('runs'), skip);
}

/** Run with its streams, and its workers that are not gone. */
export async function viewRun(store: Store, name: string): Promise<RunView | undefined> {
  const run = await runRecords.get(store, name);
  if (!run) return undefined;
  const streams = streamRecords.parseAll(await store.query(paths.streams(name)), skip);
  const workers = workerRecords
    .parseAll(await store.query('workers'), skip)
    .filter(worker => worker.phase !== 'gone');
  return {run, streams, workers, rejected: await listRejected(store, each => each === name)};
}

const NEWEST_EVENTS = 200;

/** Latest events about rejected objects, for run names that `isMeant` accepts. The name is null for an object of no run. */
export async function listRejected(store: Store, isMeant: (run: string | null) => boolean): Promise<Entry[]> {
  const newest = {order_by: {field: 'at', direction: 'desc'}, limit: NEWEST_EVENTS} as const;
  const entries = entriesOf(await store.query('events', newest)).reverse();
  return entries.filter(({kind, run}) => kind === 'rejected' && isMeant(run));
}

/** Result in the manifest of a completed run; null for a manifest without a result. */
export async function readResult(objects: Objects, run: string): Promise<RunResult | null> {
  const name = manifestObject(run);
  const bytes = await objects.read(name, {max_bytes: MAX_MANIFEST_BYTES});
  try {
    return parseJson(completedManifest, Buffer.from(bytes ?? '').toString('utf8'), name).result;
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return null;
  }
}

function nameOf({zone, pool}: Pick<Zone, 'zone' | 'pool'>): string {
  return pool === null ? zone : `${zone}, for pool ${pool},`;
}

/** Documents of jobs, commands and tasks that `status` reads: the newest. */
const NEWEST = {order_by: {field: 'updated_at', direction: 'desc'}, limit: 200} as const;
const NEWEST_EXECS = {order_by: {field: 'created_at', direction: 'desc'}, limit: 200} as const;

/** The understood documents of a deployment, and what waits for a person. */
export type DeploymentView = {runs: Run[]; pools: Pool[]; workers: Worker[]; alerts: string[]};

/**
 * Reads runs, pools and workers. `alerts`: sentences about documents that are left alone, about silent workers that a zone holds, and about
 * stopped creates. `jobs`: the collection of the jobs.
 */
export async function viewDeployment(store: Store, jobs: string): Promise<DeploymentView> {
  const alone: string[] = [];
  const note = ({message}: {message: string}) => void alone.push(message.replace('Failed to read ', ''));
  const zones = zoneRecords.parseAll(await store.query('zones'), note);
  const pools = poolRecords.parseAll(await store.query('pools'), note);
  const runs = runRecords.parseAll(await store.query('runs'), note);
  const workers = workerRecords.parseAll(await store.query('workers'), note);
  const ours = (await store.query(jobs, NEWEST)).filter(({data}) => data.epoch !== undefined);
  jobRecords.parseAll(ours, note);
  execRecords.parseAll(await store.query('execs', NEWEST_EXECS), note);
  taskRecords.parseAll(await store.query('tasks', NEWEST), note);
  const log: Log = (_, message) => note({message});
  await skipIfInvalid(log, () => spendingRecords.get(store));
  await servedRecord.read(log, store);
  await createsRecords.read(log, store);
  const held = zones.flatMap(({zone, pool, brake}) => {
    if (!brake || brake.held === 0) return [];
    const usd = brake.held_usd_per_hour === null ? 'an unknown price' : dollarText(brake.held_usd_per_hour);
    return `${nameOf({zone, pool})} holds ${counted(brake.held, 'silent TPU')} for ${usd} an hour until a new TPU speaks`;
  });
  const names = [...zones.map(nameOf), ...pools.map(({pool}) => `pool ${pool}`)];
  const limited = [...zones, ...pools].flatMap(
    ({limiter}, index) => limiterText(names[index] ?? '', limiter) ?? [],
  );
  return {runs, pools, workers, alerts: [...alone, ...held, ...limited, ...(await priceAlerts(store))]};
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
