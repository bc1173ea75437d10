/** Reads and writes of the documents of runs, streams, workers, zones and the pool, and the filters of their queries. */
import {z} from 'zod';
import {NotUnderstood, Rejected} from '../../contracts/errors.ts';
import type {Months} from '../../domain/billing/monthly-spending.ts';
import {count, dollars, stored, text} from '../../domain/fields.ts';
import {type Pool, poolDocument} from '../../domain/fleet/pool.ts';
import {paths} from '../../domain/names.ts';
import {type Run, runDocument} from '../../domain/run/run.ts';
import {type Stream, streamDocument} from '../../domain/stream/stream.ts';
import {NEVER_SERVED, type Served, servedDocument} from '../../domain/worker/served-time.ts';
import {type Worker, workerDocument} from '../../domain/worker/worker.ts';
import {type Zone, zoneDocument} from '../../domain/zone/placement.ts';
import type {Filter, Store, Transaction} from '../../ports.ts';
import type {Log} from '../log.ts';
import {recordsOf} from './document-kind.ts';

/** Cost of ended incarnations by month. */
export const spendingDocument = stored({months: z.record(text, dollars)});

/**
 * Count of all creates ever requested: a plan sees by it the creates that other ticks requested since. `late_pools`: pools that got no node
 * in the last tick, because it was slow.
 */
export const createsDocument = stored({creates: count, late_pools: z.array(text).default([])});
type Creates = z.infer<typeof createsDocument>;

/** The alert about a document that is left alone. */
export const LEFT_ALONE = {signal: 'document-left-alone'} as const;

/** Raises an alert about a document that is left alone. */
export function leftAlone(log: Log): (error: Rejected) => void {
  return error => log('ERROR', error.message, error instanceof NotUnderstood ? LEFT_ALONE : {});
}

/** Does one part of larger work. A document that is not understood is an alert, and stops no other part. */
export async function skipIfInvalid<T>(log: Log, part: () => Promise<T>): Promise<T | undefined> {
  try {
    return await part();
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    leftAlone(log)(error);
    return undefined;
  }
}

/** Streams by status. */
export const LEASED: Filter = {field: 'status', op: '==', value: 'in_progress'};
export const PENDING: Filter = {field: 'status', op: '==', value: 'pending'};
export const UNFINISHED: Filter = {field: 'status', op: 'in', value: ['pending', 'in_progress']};
export const COMPLETED: Filter = {field: 'status', op: '==', value: 'completed'};
export const FAILED: Filter = {field: 'status', op: '==', value: 'failed'};
/** Workers that are not gone. */
export const LIVING: Filter = {
  field: 'phase',
  op: 'in',
  value: ['creating', 'booting', 'idle', 'working', 'draining', 'deleting'],
};
/** Workers that a message deleted and no message has recreated. */
export const HELD: Filter = {field: 'held', op: '==', value: true};

const runs = recordsOf(runDocument);
const streams = recordsOf(streamDocument);
const workers = recordsOf(workerDocument);
const zones = recordsOf(zoneDocument);
const pools = recordsOf(poolDocument);
const served = recordsOf(servedDocument);
const spending = recordsOf(spendingDocument);
const creates = recordsOf(createsDocument);

/** A document that is not understood proves nothing. */
export const servedRecord = {
  read: async (log: Log, from: Store | Transaction): Promise<Served> =>
    (await skipIfInvalid(log, () => served.get(from, paths.served()))) ?? NEVER_SERVED,
  set: (tx: Transaction, value: Served) => served.set(tx, paths.served(), value),
};

export const runRecords = {
  ...runs,
  get: (from: Store | Transaction, run: string) => runs.get(from, paths.run(run)),
  set: (tx: Transaction, run: Run) => runs.set(tx, paths.run(run.run), run),
};

export const streamRecords = {
  ...streams,
  get: (from: Store | Transaction, run: string, stream: string) =>
    streams.get(from, paths.stream(run, stream)),
  set: (tx: Transaction, stream: Stream) => streams.set(tx, paths.stream(stream.run, stream.stream), stream),
};

export const workerRecords = {
  ...workers,
  get: (from: Store | Transaction, name: string) => workers.get(from, paths.worker(name)),
  set: (tx: Transaction, worker: Worker) => workers.set(tx, paths.worker(worker.name), worker),
};

export const spendingRecords = {
  get: async (from: Store | Transaction) => (await spending.get(from, paths.spending())) ?? {months: {}},
  set: (tx: Transaction, now: {months: Months}) => spending.set(tx, paths.spending(), now),
};

/** The count is 0 while its document is not understood: plans compare only counts of one tick. */
export const createsRecords = {
  read: async (log: Log, from: Store | Transaction) =>
    (await skipIfInvalid(log, () => creates.get(from, paths.creates()))) ?? {creates: 0, late_pools: []},
  set: (tx: Transaction, now: Creates) => creates.set(tx, paths.creates(), now),
};

export const zoneRecords = {
  ...zones,
  get: (from: Store | Transaction, zone: string, pool: string | null = null) =>
    zones.get(from, paths.zone(zone, pool)),
  set: (tx: Transaction, zone: Zone) => zones.set(tx, paths.zone(zone.zone, zone.pool), zone),
};

/** Reads the deployment's own pool. The deployment sets the fields that no message has changed or can change. */
async function findDeployed(from: Store | Transaction, deployed: Pool): Promise<Pool | undefined> {
  const pool = await pools.get(from, paths.pool(deployed.pool));
  return pool && withDeployed(pool, deployed);
}

/** The document of the deployment's own pool, with the settings of the deployment. */
export function withDeployed(found: Pool, deployed: Pool): Pool {
  if (found.version === 0) {
    const {spent_usd, said, limiter, keep, source, environment, source_version, jobs_wait, zones_wait} =
      found;
    const own = {spent_usd, said, limiter, keep, source, environment, source_version, jobs_wait, zones_wait};
    return {...found, ...deployed, ...own};
  }
  const {pool, accelerator, runtime_version, spot} = deployed;
  const poll_s = found.said.poll_s_at === undefined ? deployed.poll_s : found.poll_s;
  return {...found, pool, accelerator, runtime_version, spot, poll_s};
}

export const poolRecords = {
  ...pools,
  /** Any pool by its name. Undefined: it has no document, and is not the deployment's own pool. */
  find: async (from: Store | Transaction, name: string, deployed: Pool): Promise<Pool | undefined> => {
    if (name === deployed.pool) return (await findDeployed(from, deployed)) ?? deployed;
    const pool = await pools.get(from, paths.pool(name));
    return pool && {...pool, pool: name};
  },
  get: async (from: Store | Transaction, deployed: Pool): Promise<Pool> =>
    (await findDeployed(from, deployed)) ?? deployed,
  set: (tx: Transaction, pool: Pool) => pools.set(tx, paths.pool(pool.pool), pool),
};
