/**
 * Schemas of stored documents, apart from those of input. Unknown keys are kept at every depth, and words that only describe are text:
 * a newer release writes the same documents. A new field has a `default`, because documents of earlier releases lack it.
 */
import {z} from 'zod';
import type {Months} from '../../domain/billing/monthly-spending.ts';
import {MAX_LEASE_EPOCH, MAX_ORDINAL} from '../../domain/bounds.ts';
import {JOB_WAIT_S, type Pool} from '../../domain/fleet/pool.ts';
import type {Run} from '../../domain/run/run.ts';
import {
  type Environment,
  NO_ENVIRONMENT,
  type Source,
  type SourceReport,
} from '../../domain/source/source.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import {CONSTRAINT_KINDS} from '../../domain/waiting/constraint.ts';
import type {Served} from '../../domain/worker/served-time.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import {OPEN} from '../../domain/zone/limiter.ts';
import type {Zone} from '../../domain/zone/placement.ts';
import {describing, kept} from './document-kind.ts';

const count = z.number().int().min(0);
const epoch = count.max(MAX_LEASE_EPOCH);
const incarnation = count.max(MAX_ORDINAL);
const instant = z.iso.datetime();
const text = z.string();
/** Defaults exist because documents of the first release lack the field. */
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

export const streamDocument: z.ZodType<Stream> = z.looseObject({
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
  network_usd_per_byte: z.number().min(0).default(0),
  network_bytes: count.default(0),
  network_usd: z.number().min(0).default(0),
  last_error: text.nullable(),
  said,
  blocked_reason: text.nullable().default(null),
  created_at: instant,
  updated_at: instant,
});

/** The words of a newer release stay. */
export const waiting = z.looseObject({
  kind: describing(CONSTRAINT_KINDS),
  about: text,
  evidence: text.nullable(),
  since_at: instant,
  refusals: count.default(0),
  next_try_at: instant.nullable(),
});

export const runDocument: z.ZodType<Run> = z.looseObject({
  run: text,
  status: z.enum(['active', 'paused', 'completed', 'failed', 'cancelled']),
  reason: text.nullable(),
  waits: waiting.nullable().default(null),
  spec: z.record(text, z.unknown()).nullable(),
  spec_hash: text.nullable(),
  pool: text,
  priority: z.number().int(),
  affinity: z.enum(['any', 'fixed']).default('any'),
  stream_offset: count.default(0),
  bundle: text.nullable().default(null),
  allow_cross_region: z.boolean().default(false),
  expire_days: count.nullable().default(null),
  budget_usd: z.number().nullable(),
  spent_usd: z.number(),
  cost_usd: z.number(),
  network_bytes: count.default(0),
  network_usd: z.number().min(0).default(0),
  spent_download_usd: z.number().min(0).default(0),
  download_usd: z.number().min(0).default(0),
  version: count,
  stopped_at: instant.nullable().default(null),
  said,
  machine_deaths: count.default(0),
  machine_deaths_shards: count.default(0),
  machine_failed_streams: count.default(0),
  unjudged_death_at: instant.nullable().default(null),
  certain_failure: text.nullable().default(null),
  model_misses: count.default(0),
  model_misses_shards: count.default(0),
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

/** Default: documents of earlier releases have no limiter, and their breakers are forgotten. */
const limiter = z
  .looseObject({
    state: z.enum(['open', 'probing', 'stopped']),
    cause: z
      .enum(['no-capacity', 'quota', 'permission', 'bad-request', 'transient', 'boots', 'person'])
      .nullable(),
    reason: text.nullable(),
    since_at: instant.nullable(),
    refusals: count.default(0),
    asked_at: instant.nullable(),
    next_at: instant.nullable(),
    refuses_late: z.boolean(),
    failed_boots: count,
    failed_boot_at: instant.nullable(),
    bundle: text,
  })
  .default(OPEN);

const brake = z.looseObject({
  since_at: instant,
  active_at: instant,
  replaced: count,
  replaced_at: instant.nullable(),
  probes_due: count,
  bad_verdicts: count,
  probed_at: instant.nullable(),
  spoke_at: instant.nullable(),
  hello_at: instant.nullable(),
  held: count,
  held_usd_per_hour: z.number().nullable(),
});

const received = z.looseObject({nat_bytes: count, bucket_bytes: count, other_bytes: count});

export const workerDocument: z.ZodType<Worker> = z.looseObject({
  name: text,
  pool: text,
  zone: text,
  slot: count,
  phase: z.enum(['creating', 'booting', 'idle', 'working', 'draining', 'deleting', 'gone']),
  phase_since_at: instant,
  ready_at: instant.nullable(),
  usd_per_hour: z.number().nullable(),
  priced_as: text.nullable().default(null),
  priced_from_at: instant.nullable().default(null),
  costs: z.record(text, z.number()),
  costs_at: instant.nullable(),
  received: z.record(text, received).default({}),
  charged_to: text.nullable(),
  incarnation,
  born_at: instant.nullable().default(null),
  hello_at: instant.nullable().default(null),
  agent_at: instant.nullable().default(null),
  boot_step: text.nullable().default(null),
  host_secrets: z.record(text, text).default({}),
  hosts: z.record(text, z.looseObject({hostname: text, address: text})).default({}),
  execs: z.array(text).default([]),
  source_version: count.default(0),
  source_report: kept<SourceReport>().nullable().default(null),
  bundle: text.nullable().default(null),
  is_probe: z.boolean().default(false),
  refused: z.boolean().default(false),
  provider_state: text.nullable(),
  health: text.nullable(),
  // Fields with a default are newer than the first release.
  queue_state: text.nullable().default(null),
  provisioning: describing(['node', 'queued-resource']).nullable().default(null),
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
  yields_to: text.nullable().default(null),
  suspect: z.looseObject({work: text, epoch, total_shards: count}).nullable().default(null),
  samples_done: count.nullable(),
  samples_total: count.nullable(),
  tokens_done: count.nullable(),
  shards_done: count.nullable(),
  tokens_per_s: z.number().nullable(),
  waits_for: text.nullable().default(null),
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

export const zoneDocument: z.ZodType<Zone> = z.looseObject({
  zone: text,
  pool: text.nullable().default(null),
  limiter,
  losses: z.array(z.looseObject({ended_at: instant, lived_s: count})),
  brake: brake.nullable().default(null),
  orphans: z
    .looseObject({since_at: instant, unseen_since_at: instant.nullable().default(null)})
    .nullable()
    .default(null),
  updated_at: instant,
});

export const poolDocument: z.ZodType<Pool> = z.looseObject({
  pool: text,
  accelerator: text,
  runtime_version: text,
  spot: z.boolean(),
  provisioning: z.enum(['node', 'queued-resource', 'auto']).default('node'),
  zones: z.array(text).min(1),
  workers_per_zone: count,
  version: count,
  said,
  budget_usd: z.number().nullable(),
  spent_usd: z.number(),
  poll_s: z.number().positive().default(60),
  job_wait_s: z.number().min(0).default(JOB_WAIT_S),
  keep: z.looseObject({workers: count, until_at: instant}).nullable().default(null),
  source: kept<Source>().nullable().default(null),
  environment: kept<Environment>().default(NO_ENVIRONMENT),
  source_version: count.default(0),
  limiter,
  jobs_wait: waiting.nullable().default(null),
  zones_wait: z.record(text, waiting).default({}),
});

export const servedDocument: z.ZodType<Served> = z.looseObject({
  proven_at: instant.nullable(),
  gaps: z.array(z.looseObject({from_at: instant, to_at: instant})),
  failed_pings: count,
  failing_since_at: instant.nullable().default(null),
});

/** Cost of ended incarnations by month. */
export const spendingDocument: z.ZodType<{months: Months}> = z.looseObject({
  months: z.record(text, z.number()),
});

/** Count of all creates ever requested: a plan sees by it the creates that other ticks requested since. */
export const createsDocument: z.ZodType<{creates: number}> = z.looseObject({creates: count});
