import {z} from 'zod';
import {NO_SPENDING, spendingDocument} from '../../domain/billing/monthly-spending.ts';
import {count, describing, instant, orNull, stored, text} from '../../domain/fields.ts';
import {paths} from '../../domain/names.ts';
import {newsOfMonth, newsOfPool, newsOfRun, newsOfZone} from '../../domain/notices/news.ts';
import {type ExecHost, execDocument, execHostDocument} from '../../domain/records/exec.ts';
import {pick} from '../../domain/records/field.ts';
import {type Pool, poolDocument} from '../../domain/records/pool.ts';
import {poolPaces, poolTerms} from '../../domain/records/pool-settings.ts';
import {runDocument} from '../../domain/records/run.ts';
import {shardDocument} from '../../domain/records/shard.ts';
import {streamDocument} from '../../domain/records/stream.ts';
import {workerDocument} from '../../domain/records/worker.ts';
import {zoneDocument} from '../../domain/records/zone.ts';
import {EVENT_KINDS} from '../../domain/timeline.ts';
import {attemptDocument} from '../../domain/worker/attempt.ts';
import {NEVER_SERVED, servedDocument} from '../../domain/worker/served-time.ts';
import type {Filter, Store, Transaction} from '../../ports/ports.ts';
import type {Log} from '../calls/log.ts';
import {recordsAt, recordsOf} from './document-kind.ts';

export {LEFT_ALONE, leftAlone, skipIfInvalid} from './document-kind.ts';

export const createsDocument = stored({
  creates: count.describe('Creates that were ever requested. A plan sees by it what other ticks requested.'),
  late_pools: z
    .array(text)
    .describe(
      'Pools that got no node in the last tick, because it was slow. The next tick plans them first.',
    ),
  next_at: orNull(instant)
    .default(null)
    .describe('Earliest next create of any pool, after Google limited those of the project; else null.'),
});

export const LEASED: Filter = {field: 'status', op: '==', value: 'in_progress'};
export const PENDING: Filter = {field: 'status', op: '==', value: 'pending'};
export const UNFINISHED: Filter = {field: 'status', op: 'in', value: ['pending', 'in_progress']};
export const COMPLETED: Filter = {field: 'status', op: '==', value: 'completed'};
export const FAILED: Filter = {field: 'status', op: '==', value: 'failed'};
/** Runs, or jobs, that have ended. */
export const ENDED: Filter = {
  field: 'status',
  op: 'in',
  value: ['completed', 'failed', 'cancelled', 'stopped'],
};
export const LIVING: Filter = {
  field: 'phase',
  op: 'in',
  value: ['creating', 'booting', 'idle', 'working', 'draining', 'deleting'],
};
/** Workers that a message deleted and no message has recreated. */
export const HELD: Filter = {field: 'held', op: '==', value: true};

export const runRecords = recordsAt(runDocument, paths.run, ({run}) => paths.run(run), newsOfRun);
export const streamRecords = recordsAt(streamDocument, paths.stream, ({run, stream}) =>
  paths.stream(run, stream),
);
export const workerRecords = recordsAt(workerDocument, paths.worker, ({name}) => paths.worker(name));
export const zoneRecords = recordsAt(
  zoneDocument,
  paths.zone,
  ({zone, pool}) => paths.zone(zone, pool),
  newsOfZone,
);

const pools = recordsAt(poolDocument, paths.pool, ({pool}) => paths.pool(pool), newsOfPool);
const served = recordsAt(servedDocument, paths.served, paths.served);
const spending = recordsAt(spendingDocument, paths.spending, paths.spending, newsOfMonth);
const creates = recordsAt(createsDocument, paths.creates, paths.creates);

/** A document that is not understood proves nothing. */
export const servedRecord = {
  read: async (log: Log, from: Store | Transaction) => (await served.read(log, from)) ?? NEVER_SERVED,
  set: served.set,
};

export const spendingRecords = {
  get: async (from: Store | Transaction) => (await spending.get(from)) ?? NO_SPENDING,
  set: spending.set,
};

/** The count is 0 while its document is not understood; plans compare only counts of one tick. */
export const createsRecords = {
  read: async (log: Log, from: Store | Transaction) =>
    (await creates.read(log, from)) ?? {creates: 0, late_pools: [], next_at: null},
  set: creates.set,
};

/** Reads the deployment's own pool. The deployment's settings apply to fields that no message has changed or can change. */
async function findDeployed(from: Store | Transaction, deployed: Pool): Promise<Pool | undefined> {
  const pool = await pools.get(from, deployed.pool);
  return pool && withDeployed(pool, deployed);
}

/** The document of the deployment's own pool, with the settings of the deployment. */
export function withDeployed(found: Pool, deployed: Pool): Pool {
  if (found.version === 0) {
    const {spent_usd, message_times, limiter, keep, source, environment, source_version} = found;
    const {budget_notice, jobs_wait, zones_wait} = found;
    const own = {spent_usd, message_times, limiter, keep, source, environment, source_version};
    return {...found, ...deployed, ...own, budget_notice, jobs_wait, zones_wait};
  }
  const paces = Object.entries(pick(poolPaces, deployed));
  const unsaid = paces.filter(([name]) => found.message_times[`${name}_at`] === undefined);
  return {...found, pool: deployed.pool, ...pick(poolTerms, deployed), ...Object.fromEntries(unsaid)};
}

export const poolRecords = {
  ...pools,
  /** Any pool by its name. Undefined: it has no document, and is not the deployment's own pool. */
  find: async (from: Store | Transaction, name: string, deployed: Pool): Promise<Pool | undefined> => {
    if (name === deployed.pool) return (await findDeployed(from, deployed)) ?? deployed;
    const pool = await pools.get(from, name);
    return pool && {...pool, pool: name};
  },
  get: async (from: Store | Transaction, deployed: Pool): Promise<Pool> =>
    (await findDeployed(from, deployed)) ?? deployed,
};

export const RUNNING: Filter = {field: 'status', op: '==', value: 'running'};
export const OPEN_HOSTS: Filter = {field: 'status', op: 'in', value: ['waiting', 'running']};
export const SUCCEEDED: Filter[] = [
  {field: 'status', op: '==', value: 'exited'},
  {field: 'exit_code', op: '==', value: 0},
];

export const execRecords = recordsAt(execDocument, paths.exec, ({exec}) => paths.exec(exec));

const hosts = recordsOf(execHostDocument);

export const execHostRecords = {
  ...hosts,
  get: (from: Store | Transaction, exec: string, worker: string, host: number) =>
    hosts.get(from, paths.execHost(exec, worker, host)),
  set: (tx: Transaction, exec: string, host: ExecHost) =>
    hosts.set(tx, paths.execHost(exec, host.worker, host.host), host),
};

/** Most characters of a text from a message, a name or an error, because a document holds at most 1 MiB. */
export const MAX_TEXT = 4000;

export const shardRecords = recordsOf(shardDocument);

export const eventRecords = recordsOf(
  z.looseObject({
    kind: describing(EVENT_KINDS).describe(
      'Subject of the event: `run`, `stream`, `shard`, `worker`, `zone`, `rejected`, `control`, `job` or `exec`; or `contradiction`, an object that exists with other bytes than were to be created.',
    ),
    text: text.max(MAX_TEXT).describe('The event as a sentence.'),
    at: instant.describe('Time of the event. Sort by this field.'),
    expire_at: instant.describe(
      'Firestore deletes the document some time after this: 30 days after its time.',
    ),
  }),
);

export const controlRecords = recordsOf(
  z.looseObject({
    outcome: describing(['applied', 'rejected']).describe('`applied` or `rejected`.'),
    reason: text.describe('What was done, or why the message was rejected.'),
    message: text.max(MAX_TEXT).describe('The message as it arrived, cut after 4,000 characters.'),
    at: instant.describe('Time at which the message was decided.'),
    expire_at: instant.describe('Firestore deletes the document some time after this.'),
  }),
);

export const attemptRecords = recordsOf(attemptDocument);
