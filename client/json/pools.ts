/** Answers about pools and their hosts: `gleaner pools`, `exec`, `discover`, `update` and `versions`. */
import {z} from 'zod';
import {execHostRecords, execRecords} from '../../shared/control-plane/documents/documents.ts';
import {poolDocument} from '../../shared/domain/records/pool.ts';
import {ran, source, sourceReport} from '../../shared/domain/records/source.ts';
import {commands, count, dollars, maybe, text} from './fields.ts';

const alive = z.looseObject({pool: text, alive: z.array(text)});

const report = sourceReport.extend({ran: ran.nullable(), at: text}).loose();

const host = z.strictObject({
  ...{worker: text, host: count, hostname: text, address: text, pool: text, phase: text},
  heartbeat_at: maybe,
});

const exec = z.intersection(execRecords.schema, z.looseObject({results: z.array(execHostRecords.schema)}));

/** Code of a host: the newest version that is ready or failed there. */
const codeOfHost = report.partial().extend({worker: text, host: count});

const codeOfPool = z.strictObject({
  pool: text,
  accelerator: text.nullable(),
  runtime_version: text.nullable(),
  source: source.nullable(),
  source_version: count,
  jax_version: text.nullable(),
  workers: z.array(
    z.strictObject({
      worker: text,
      bundle: text.nullable(),
      source_report: report.nullable(),
      hosts: z.array(codeOfHost),
    }),
  ),
});

/** Counts of the last week. A mean is null before the first TPU, and a price before the first stored token. */
const churn = z.strictObject({
  ...{zone: text, accelerator: text, tries: count, refusals: count, given: count},
  mean_wait_s: z.number().nullable(),
  ...{lives: count, mean_life_s: z.number().nullable(), preemptions: count, usd: dollars, tokens: count},
  usd_per_million_tokens: dollars.nullable(),
});

export const poolAnswers = {
  churn: z.array(churn),
  /** The deployment's own pool has no document before a message changes it. */
  pools: z.array(z.union([z.intersection(poolDocument, alive), alive])),
  exec: z.union([exec, z.strictObject({exec: text, command: text})]),
  discover: z.array(host),
  update: z.union([
    z.strictObject({done: text, ready: z.boolean(), seconds: z.number(), workers: z.array(codeOfHost)}),
    z.strictObject({done: text}),
    commands,
  ]),
  'prices update': z.strictObject({
    dry_run: z.boolean(),
    prices: z.record(text, z.looseObject({usd: dollars, spot_usd: dollars, as_of: text.optional()})),
    /** Lines about prices that changed, and about prices that the catalog lacks or people have set. */
    changed: z.array(text),
    kept: z.array(text),
  }),
  versions: z.union([
    z.strictObject({gleaner: text, pools: z.array(codeOfPool)}),
    z.strictObject({available: z.array(z.strictObject({zone: text, versions: z.array(text)}))}),
    commands,
  ]),
};
