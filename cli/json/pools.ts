/** Answers about pools and their hosts: `gleaner pools`, `exec`, `discover`, `update` and `versions`. */
import {z} from 'zod';
import {environment, ran, source, sourceReport} from '../../shared/contracts/job-schemas.ts';

const text = z.string();
const count = z.number().int().min(0);
const commands = z.strictObject({commands: z.array(text)});

const report = sourceReport.extend({ran: ran.nullable(), at: text}).loose();

const pool = z.strictObject({
  pool: text,
  accelerator: text,
  runtime_version: text,
  spot: z.boolean(),
  provisioning: text,
  zones: z.array(text),
  workers_per_zone: count,
  version: count,
  said: z.record(text, text),
  budget_usd: z.number().nullable(),
  spent_usd: z.number(),
  poll_s: z.number(),
  source: source.nullable(),
  environment,
  source_version: count,
  boots: z.looseObject({stopped_at: text.nullable()}),
  alive: z.array(text),
});

const host = z.strictObject({
  worker: text,
  host: count,
  hostname: text,
  address: text,
  pool: text,
  phase: text,
});

const execHost = z.strictObject({
  worker: text,
  incarnation: count,
  host: count,
  hostname: text.nullable(),
  status: text,
  exit_code: z.number().nullable(),
  error: text.nullable(),
  started_at: text.nullable(),
  ended_at: text.nullable(),
  expire_at: text,
  output_path: text,
});

const exec = z.strictObject({
  exec: text,
  target: text,
  argv: z.array(text),
  shell: z.boolean(),
  timeout_s: z.number(),
  requested_by: text.nullable(),
  message_id: text,
  status: text,
  reason: text.nullable(),
  is_assigned: z.boolean(),
  hosts: count,
  hosts_done: count,
  hosts_failed: count,
  created_at: text,
  deadline_at: text,
  completed_at: text.nullable(),
  expire_at: text,
  output_path: text,
  results: z.array(execHost),
});

const codeOfPool = z.strictObject({
  pool: text,
  accelerator: text.nullable(),
  runtime_version: text.nullable(),
  source: source.nullable(),
  source_version: count,
  jax_version: text.nullable(),
  workers: z.array(z.strictObject({worker: text, bundle: text.nullable(), source_report: report.nullable()})),
});

export const poolAnswers = {
  pools: z.array(z.union([pool, z.strictObject({pool: text, alive: z.array(text)})])),
  exec: z.union([exec, z.strictObject({exec: text, command: text})]),
  discover: z.array(host),
  update: z.union([
    z.strictObject({
      done: text,
      ready: z.boolean(),
      seconds: z.number(),
      workers: z.array(report.partial().extend({worker: text})),
    }),
    z.strictObject({done: text}),
    commands,
  ]),
  versions: z.union([
    z.strictObject({gleaner: text, pools: z.array(codeOfPool)}),
    z.strictObject({available: z.array(z.strictObject({zone: text, versions: z.array(text)}))}),
    commands,
  ]),
};
