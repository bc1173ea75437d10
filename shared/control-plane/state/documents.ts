/**
 * Documents as the rules know them: read through a schema, because the console lets people edit them. Fields that it does not know
 * are kept: during a deployment the next release writes the same documents. A field that comes later has a `default`, because
 * documents of earlier releases lack it.
 */
import {z} from 'zod';
import {Rejected} from '../../contracts/errors.ts';
import {provisioning} from '../../contracts/schemas.ts';
import type {Months} from '../../domain/billing/monthly-spending.ts';
import {MAX_LEASE_EPOCH, MAX_ORDINAL} from '../../domain/bounds.ts';
import {NO_BOOTS} from '../../domain/fleet/breakers.ts';
import type {Zone} from '../../domain/fleet/placement.ts';
import type {Pool} from '../../domain/fleet/pool.ts';
import {paths} from '../../domain/names.ts';
import type {Run} from '../../domain/run/run.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import {NEVER_SERVED, type Served} from '../../domain/worker/served-time.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Filter, Store, Transaction} from '../../ports.ts';
import {kind} from './document-kind.ts';
import type {Log} from './log.ts';

const count = z.number().int().min(0);
const epoch = count.max(MAX_LEASE_EPOCH);
const incarnation = count.max(MAX_ORDINAL);
const instant = z.iso.datetime();
const text = z.string();
/** Newer than the first release, whose documents lack it. */
const said = z.record(text, instant).default({});

const progress = {
  last_processed_sample_idx: z.number().int().min(-1),
  total_samples_processed: count,
  total_shards: count,
  rejected_samples: count,
  total_tokens: count,
  total_bytes: count,
  finished: z.boolean(),
};

const streamDocument: z.ZodType<Stream> = z.looseObject({
  run: text,
  stream: text,
  worker_id: count,
  object: text,
  generation: text,
  size_bytes: count,
  crc32c: text,
  dataset_path: text,
  model_path: text,
  status: z.enum(['pending', 'in_progress', 'completed', 'failed']),
  epoch,
  lease: z.looseObject({worker: text, incarnation, epoch}).nullable(),
  ...progress,
  failures: count,
  faults: count,
  last_error: text.nullable(),
  said,
  blocked_reason: text.nullable().default(null),
  created_at: instant,
  updated_at: instant,
});

const runDocument: z.ZodType<Run> = z.looseObject({
  run: text,
  status: z.enum(['active', 'paused', 'completed', 'failed', 'cancelled']),
  reason: text.nullable(),
  spec: z.record(text, z.unknown()).nullable(),
  spec_hash: text.nullable(),
  pool: text,
  priority: z.number().int(),
  affinity: z.enum(['any', 'fixed']).default('any'),
  stream_offset: count.default(0),
  budget_usd: z.number().nullable(),
  spent_usd: z.number(),
  cost_usd: z.number(),
  version: count,
  stopped_at: instant.nullable().default(null),
  said,
  machine_deaths: count.default(0),
  machine_deaths_shards: count.default(0),
  machine_failed_streams: count.default(0),
  unjudged_death_at: instant.nullable().default(null),
  streams_pending: count,
  streams_in_progress: count,
  streams_completed: count,
  streams_failed: count,
  total_samples_processed: count,
  rejected_samples: count,
  total_tokens: count,
  total_shards: count,
  total_bytes: count,
  created_at: instant,
  updated_at: instant,
});

const boots = z
  .looseObject({
    unheard: count,
    unheard_at: instant.nullable(),
    stopped_at: instant.nullable(),
    tried_at: instant.nullable(),
    bundle: text,
  })
  .default(NO_BOOTS);

const brake = z.looseObject({
  since_at: instant,
  active_at: instant,
  replaced: count,
  probes_due: count,
  bad_verdicts: count,
  probed_at: instant.nullable(),
  spoke_at: instant.nullable(),
  held: count,
  held_usd_per_hour: z.number().nullable(),
});

const workerDocument: z.ZodType<Worker> = z.looseObject({
  name: text,
  pool: text,
  zone: text,
  slot: count,
  phase: z.enum(['creating', 'booting', 'idle', 'working', 'draining', 'deleting', 'gone']),
  phase_since_at: instant,
  ready_at: instant.nullable(),
  usd_per_hour: z.number().nullable(),
  costs: z.record(text, z.number()),
  costs_at: instant.nullable(),
  charged_to: text.nullable(),
  incarnation,
  born_at: instant.nullable().default(null),
  hello_at: instant.nullable().default(null),
  bundle: text.nullable().default(null),
  is_probe: z.boolean().default(false),
  provider_state: text.nullable(),
  health: text.nullable(),
  // Those with a default are newer than the first release, whose documents lack them.
  queue_state: text.nullable().default(null),
  provisioning: z.enum(['node', 'queued-resource']).nullable().default(null),
  valid_until_at: instant.nullable().default(null),
  provider_since_at: instant.nullable().default(null),
  unready_at: instant.nullable().default(null),
  missing_since_at: instant.nullable().default(null),
  symptoms: z.array(z.looseObject({symptom: text, details: text, created_at: instant})).default([]),
  fault: text.nullable().default(null),
  heartbeat_at: instant.nullable(),
  activity: text.nullable(),
  work: text.nullable(),
  epoch: epoch.nullable().default(null),
  claimed_at: instant.nullable().default(null),
  drains: z.boolean().default(false),
  suspect: z.looseObject({work: text, epoch, total_shards: count}).nullable().default(null),
  samples_done: count.nullable(),
  samples_total: count.nullable(),
  tokens_done: count.nullable(),
  shards_done: count.nullable(),
  tokens_per_s: z.number().nullable(),
  progress_at: instant.nullable(),
  blocked_until_at: instant.nullable(),
  asked_at: instant.nullable(),
  recreate: z.boolean(),
  held: z.boolean(),
  last_death: text.nullable(),
  last_error: text.nullable(),
  said,
  created_at: instant,
  updated_at: instant,
});

const zoneDocument: z.ZodType<Zone> = z.looseObject({
  zone: text,
  blocked_until_at: instant.nullable(),
  blocked_reason: text.nullable(),
  sold_out_at: instant.nullable().default(null),
  losses: z.array(z.looseObject({ended_at: instant, lived_s: count})),
  creates: z.array(z.looseObject({asked_at: instant})),
  boots,
  brake: brake.nullable().default(null),
  orphans: z
    .looseObject({since_at: instant, unseen_since_at: instant.nullable().default(null)})
    .nullable()
    .default(null),
  updated_at: instant,
});

const poolDocument: z.ZodType<Pool> = z.looseObject({
  pool: text,
  accelerator: text,
  runtime_version: text,
  spot: z.boolean(),
  provisioning: provisioning.default('node'),
  zones: z.array(text).min(1),
  workers_per_zone: count,
  version: count,
  said,
  budget_usd: z.number().nullable(),
  spent_usd: z.number(),
  poll_s: z.number().positive().default(60),
  boots,
});

const servedDocument: z.ZodType<Served> = z.looseObject({
  proven_at: instant.nullable(),
  gaps: z.array(z.looseObject({from_at: instant, to_at: instant})),
  failed_pings: count,
  failing_since_at: instant.nullable().default(null),
});

/** Does one part of a larger look; a document that cannot be read is logged and stops nothing else. */
export async function skipIfInvalid<T>(log: Log, part: () => Promise<T>): Promise<T | undefined> {
  try {
    return await part();
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    log('ERROR', error.message);
    return undefined;
  }
}

/** Streams by status: leased, without a worker, either of them, and parked. */
export const LEASED: Filter = {field: 'status', op: '==', value: 'in_progress'};
export const PENDING: Filter = {field: 'status', op: '==', value: 'pending'};
export const UNFINISHED: Filter = {field: 'status', op: 'in', value: ['pending', 'in_progress']};
export const FAILED: Filter = {field: 'status', op: '==', value: 'failed'};
/** Workers that are not gone. */
export const LIVING: Filter = {
  field: 'phase',
  op: 'in',
  value: ['creating', 'booting', 'idle', 'working', 'draining', 'deleting'],
};
/** Workers that a message deleted and none has recreated. */
export const HELD: Filter = {field: 'held', op: '==', value: true};

const runs = kind(runDocument);
const streams = kind(streamDocument);
const workers = kind(workerDocument);
const zones = kind(zoneDocument);
const pools = kind(poolDocument);
const served = kind(servedDocument);

/** A document that cannot be read proves nothing, and the next proof replaces it. */
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

/** What lives that have ended cost in each month. */
const spending = kind<{months: Months}>(z.looseObject({months: z.record(text, z.number())}));
/** How many nodes were ever asked for: a plan sees by it what others have asked for since. */
const creates = kind<{creates: number}>(z.looseObject({creates: count}));

export const spendingRecords = {
  get: async (from: Store | Transaction) => (await spending.get(from, paths.spending())) ?? {months: {}},
  set: (tx: Transaction, now: {months: Months}) => spending.set(tx, paths.spending(), now),
};

/** Where the document cannot be read, the count begins anew: plans compare two counts of one time. */
export const createsRecords = {
  read: async (log: Log, from: Store | Transaction) =>
    (await skipIfInvalid(log, () => creates.get(from, paths.creates()))) ?? {creates: 0},
  set: (tx: Transaction, now: {creates: number}) => creates.set(tx, paths.creates(), now),
};

export const zoneRecords = {
  ...zones,
  get: (from: Store | Transaction, zone: string) => zones.get(from, paths.zone(zone)),
  set: (tx: Transaction, zone: Zone) => zones.set(tx, paths.zone(zone.zone), zone),
};

/** As messages have left it. What no message has changed, or can change, is as it is deployed now. */
async function findPool(from: Store | Transaction, deployed: Pool): Promise<Pool | undefined> {
  const found = await pools.get(from, paths.pool(deployed.pool));
  if (found?.version === 0) {
    const {spent_usd, said, boots} = found;
    return {...found, ...deployed, spent_usd, said, boots};
  }
  const {accelerator, runtime_version, spot, poll_s} = deployed;
  return found && {...found, accelerator, runtime_version, spot, poll_s};
}

export const poolRecords = {
  ...pools,
  find: findPool,
  get: async (from: Store | Transaction, deployed: Pool): Promise<Pool> =>
    (await findPool(from, deployed)) ?? deployed,
  set: (tx: Transaction, pool: Pool) => pools.set(tx, paths.pool(pool.pool), pool),
};
