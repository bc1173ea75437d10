/** Answers of `gleaner tpus …`, `gleaner logs`, `gleaner events` and `gleaner dashboard`. */
import {z} from 'zod';
import {commands, count, dollars, maybe, text, textOrNull} from './fields.ts';

export const tpu = z.strictObject({
  ...{tpu: text, status: text, phase: text, pool: text, zone: text, accelerator: maybe, incarnation: count},
  ...{work: maybe, activity: maybe, boot_step: maybe, since_at: text, heartbeat_at: maybe},
  usd_per_hour: dollars.nullable(),
  is_billed: z.boolean(),
  cost_usd: dollars,
  held: z.boolean(),
  /** Why it does no work. */
  reason: maybe,
  last_error: maybe,
});

/** Seconds and dollars by phase: `create_wait`, `boot`, `environment`, `weights`, `compile`, `extract`, `upload`, `job`, `idle`, `lost`. */
export const phases = z.record(text, z.looseObject({seconds: z.number(), usd: dollars.nullable()}));

export const attempt = z.strictObject({
  ...{incarnation: count, cause: text, evidence: text, last_phase: textOrNull, work: textOrNull},
  ...{ready_at: maybe, ended_at: text, cost_usd: dollars},
  phases: phases.default({}).catch({}),
  log: textOrNull,
});

export const host = z.strictObject({
  host: count,
  hostname: text,
  address: text,
  phase: text,
  heartbeat_at: maybe,
});

const outcome = z.strictObject({tpu: text, outcome: text, reason: text});
const results = z.strictObject({results: z.array(outcome)});

const ceiling = z.strictObject({
  pool: text,
  most_tpus: count,
  most_usd_per_hour: dollars,
  unknown_zones: z.array(text),
});

const logLine = z.union([
  z.strictObject({
    ...{tpu: text, incarnation: count, host: count, time: maybe, severity: maybe, message: text},
    traceback: maybe,
  }),
  z.strictObject({job: text, text}),
]);

export const event = z.strictObject({
  ...{id: text, at: text, kind: text, text, run: textOrNull, stream: textOrNull, worker: textOrNull},
  ...{job: textOrNull, object: textOrNull},
});

export const tpuAnswers = {
  'tpus list': z.strictObject({
    tpus: z.array(tpu),
    totals: z.strictObject({
      tpus: count,
      working: count,
      billed: count,
      usd_per_hour: dollars,
      unknown_prices: count,
    }),
  }),
  'tpus status': z.strictObject({
    ...tpu.shape,
    ...{provider_state: maybe, queue_state: maybe, health: maybe, provisioning: maybe, ready_at: maybe},
    symptoms: z.array(z.looseObject({symptom: text, details: text, created_at: text})),
    hosts: z.array(host),
    costs: z.record(text, dollars),
    attempts: z.array(attempt),
  }),
  'tpus create': z.union([
    z.strictObject({done: text, ceiling: ceiling.nullable()}),
    z.strictObject({command: text}),
    results,
    commands,
  ]),
  'tpus recreate': z.union([results, z.strictObject({results: z.tuple([]), lost: z.array(text)}), commands]),
  'tpus delete': z.union([results, commands]),
  logs: logLine,
  events: event,
  /** The address has the token of the pages. */
  dashboard: z.strictObject({url: text}),
};

export type Attempt = z.infer<typeof attempt>;
/** Most TPUs of a pool, and the most dollars that an hour of them costs. `unknown_zones`: zones without a known price. */
export type Ceiling = z.infer<typeof ceiling>;
export type Entry = z.infer<typeof event>;
