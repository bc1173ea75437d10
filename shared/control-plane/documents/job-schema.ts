/**
 * Schema of the documents of jobs that the control plane has completed: the fields that people write are checked before. Words that only
 * describe, such as `cause`, are kept whatever a newer release writes.
 */
import {z} from 'zod';
import {MAX_LEASE_EPOCH, MAX_ORDINAL} from '../../domain/bounds.ts';
import {CAUSES, type Job} from '../../domain/job/job.ts';
import type {Environment, Ran, Source} from '../../domain/source/source.ts';
import {describing, kept} from './document-kind.ts';

const count = z.number().int().min(0);
const instant = z.iso.datetime();
const text = z.string();
const amount = z.number().nullable();
const epoch = count.max(MAX_LEASE_EPOCH);
const incarnation = count.max(MAX_ORDINAL);
const cause = describing(CAUSES).nullable();
const ran = kept<Ran>().nullable();

/** The type of the schema is that of a job. */
export const jobDocument = z.looseObject({
  job: text,
  challenge_number: z.number().int().nullable(),
  code: text.nullable(),
  command: z.union([z.array(text), text]).nullable(),
  timeout: z.number().positive(),
  pool: text,
  priority: z.number().int(),
  max_retries: count,
  source: kept<Source>().nullable(),
  environment: kept<Partial<Environment>>().nullable(),
  limits: z
    .looseObject({memory_gb: amount, processes: amount, open_files: amount, file_gb: amount})
    .nullable(),
  metadata: z.record(text, z.unknown()),
  deadline_at: instant.nullable(),
  budget_usd: z.number().nullable(),
  status: z.enum(['pending', 'scheduled', 'running', 'completed', 'failed', 'cancelled']),
  queue: text.nullable(),
  epoch,
  lease: z.looseObject({worker: text, incarnation, epoch}).nullable(),
  due_at: instant.nullable(),
  failures: count,
  machine_failures: count,
  result: text.nullable(),
  result_path: text.nullable(),
  error: text.nullable(),
  cause,
  reason: text.nullable().default(null),
  exit_code: z.number().int().nullable(),
  attempts: z.array(
    z.looseObject({
      ...{epoch, worker: text, incarnation, started_at: instant, ended_at: instant, cause},
      outcome: describing(['completed', 'failed', 'preempted', 'drained', 'cancelled']),
      error: text.nullable(),
      exit_code: z.number().int().nullable(),
      cost_usd: z.number().nullable(),
      ran,
    }),
  ),
  ran,
  log_path: text.nullable(),
  artifacts_path: text.nullable(),
  spent_usd: z.number(),
  long_epoch: epoch.nullable().default(null),
  said: z.record(text, instant),
  created_at: instant,
  scheduled_at: instant.nullable(),
  started_at: instant.nullable(),
  completed_at: instant.nullable(),
  updated_at: instant,
  expire_at: instant.nullable(),
}) satisfies z.ZodType<Job>;
