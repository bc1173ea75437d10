/** Answers of the commands about runs. Documents keep the fields that later releases add. */
import {z} from 'zod';
import {waiting} from '../../shared/domain/records/constraint.ts';
import {runDocument} from '../../shared/domain/records/run.ts';
import {streamDocument} from '../../shared/domain/records/stream.ts';
import {workerDocument} from '../../shared/domain/records/worker.ts';
import {comparedManifest} from './compared-manifest.ts';
import {commands, count, dollars, maybe, text} from './fields.ts';
import {event} from './tpus.ts';

export const beside = z.strictObject({
  network_usd: dollars,
  operations_usd: dollars,
  control_usd: dollars,
  storage_usd_per_month: dollars,
});

const run = z.intersection(runDocument, z.looseObject({usd_per_million_tokens: dollars.nullable(), beside}));

const status = z.union([
  z.array(run),
  z.strictObject({
    ...{run, streams: z.array(streamDocument), workers: z.array(workerDocument)},
    ...{events: z.array(event), rejected: z.array(event), alerts: z.array(text)},
    result: z.looseObject({}).nullable(),
  }),
]);

export const watched = z.strictObject({
  ...{at: text, run: text, status: text, reason: maybe, waits: waiting.nullable()},
  ...{samples: count, rejected: count, tokens: count, shards: count, bytes: count},
  ...{cost_usd: dollars, budget_usd: dollars.nullable()},
  streams: z.strictObject({
    total: count,
    pending: count,
    in_progress: count,
    completed: count,
    failed: count,
  }),
  /** Texts about documents that cannot be read. */
  not_shown: z.array(text),
  tpus: z.array(
    z.strictObject({
      tpu: text,
      status: text,
      work: maybe,
      samples: count.nullable(),
      shards: count.nullable(),
    }),
  ),
});

const counts = {
  ...{samples: count, stored_once: count, missing: count, doubled: count, different: count, rejected: count},
  ...{shards: count, problems: z.array(text)},
};
const report = {
  ...counts,
  /** `anchored`: the digest was compared with that of the manifest, or of --digest. */
  ...{digest: maybe, anchored: z.boolean()},
  ...{run: text, ok: z.boolean(), truncated: count, bytes: count, tokens: count},
  streams: z.array(z.looseObject({stream: text, ...counts})),
};
/** `reference`: with --reference. */
const verified = z.strictObject({...report, reference: comparedManifest.shape.reference.optional()});

const span = z.looseObject({estimate: z.number(), low: z.number(), high: z.number().nullable()});
const estimate = z.looseObject({
  ...{what: text, spec: z.looseObject({}), streams: count, exact: z.boolean()},
  totals: z.looseObject({samples: span, rejected: span, tokens: span, rows: span, shards: span}),
  ...{stored_bytes: span, tpu_hours: span.nullable(), clock_hours: span.nullable()},
  tokens_per_second: span.nullable(),
  usd: z.strictObject({spot: span.nullable(), on_demand: span.nullable()}),
  beside_usd: z.strictObject({
    network: span,
    nat: span,
    operations: span,
    control: span,
    storage_month: span,
  }),
  prices_are: z.strictObject({
    source: z.enum(['list', 'catalog', 'person']),
    as_of: maybe,
    ...{is_highest: z.boolean(), is_recorded: z.boolean()},
  }),
});

const compiled = z.looseObject({
  ...{model: text, accelerator: text, fits: z.boolean()},
  /** Hosts above 1: the type is for jobs, and a run uses types of one host. */
  ...{chips: count, hosts: count},
});
/** `recommended`: the type of one host with the lowest price of a million tokens on spot; null if no such type has a price. */
const preflight = z.strictObject({
  spec: z.looseObject({}),
  recommended: text.nullable(),
  programs: z.array(
    compiled.extend({
      usd_per_million_tokens: z.strictObject({spot: z.number().nullable(), on_demand: z.number().nullable()}),
      /** Tokens a second of the slowest stage, which the price rests on; `limit` names it. Null for a program that does not fit. */
      rate: span.extend({limit: text}).nullable(),
    }),
  ),
});

const pair = {name: text, a: z.unknown(), b: z.unknown()};
const compared = z.strictObject({
  ...{a: text, b: text, same: z.boolean()},
  ...{spec: z.array(z.strictObject(pair)), totals: z.array(z.strictObject(pair))},
  statistics: z.array(z.strictObject({...pair, relative: z.number().nullable()})),
  shards: z.strictObject({same_bytes: count, other_bytes: count, only_a: count, only_b: count}),
  notes: z.array(text),
});

const exported = z.union([
  z.strictObject({
    to: z.enum(['numpy', 'safetensors', 'dictionary_learning', 'pairs']),
    ...{run: text, site: text, layer: count, dtype: text, rows: count, d_model: count, samples: count},
    ...{files: z.record(text, text), output: text},
    parts: count.optional(),
    /** Seed of the order for dictionary_learning; null for the order of storage. */
    seed: count.nullable().optional(),
  }),
  z.strictObject({
    to: z.literal('saelens'),
    ...{hook_name: text, context_size: count, d_in: count, contexts: count, rows: count},
    ...{rows_left_out: count, output: text},
  }),
  z.strictObject({
    to: z.literal('speculators'),
    ...{target_layer_ids: z.array(count), last_layer_id: count, dtype: text, d_model: count},
    ...{samples: count, tokens: count, output: text},
  }),
  z.strictObject({
    to: z.enum(['delphi', 'features']),
    ...{run: text, name: text, layer: count, features: count, rows: count, contexts: count},
    ...{left_out: count, dropped: count, output: text},
  }),
  z.strictObject({
    to: z.literal('hub'),
    ...{repo: text, url: text, private: z.boolean(), digest: text, files: count},
    ...{size_bytes: count, uploaded: count},
  }),
]);

const survey = z.looseObject({
  stream: text,
  finding: text,
  stored_shards: count,
  known_shards: count,
  why: maybe,
});
const rebuilt = z.strictObject({
  runs: z.array(
    z.union([
      z.strictObject({run: text, right: z.boolean(), summary: text, wrong: z.array(survey)}),
      z.strictObject({run: text, outcome: text, reason: text, faulty: z.array(survey)}),
    ]),
  ),
});

/** `kind`: null for work that moves. `behind`: why the work waits that goes first. */
const why = z.strictObject({
  ...{name: text, state: text, waits: z.boolean(), moves: text, kind: maybe, about: maybe, evidence: maybe},
  ...{since_at: maybe, refusals: count, next_try_at: maybe, reason: maybe, next_step: maybe, behind: maybe},
});

export const runAnswers = {
  why,
  status,
  'run status': status,
  'run list': z.array(run),
  'run delete': z.union([
    z.strictObject({run: text, objects: count, size_bytes: count, stays: z.array(text)}),
    z.strictObject({command: text}),
  ]),
  'run watch': watched,
  'run start': z.union([
    z.strictObject({
      ...{run: text, status: maybe, streams: count, rejected: z.array(text)},
      /** As `estimate` prints it; null where nothing was known of the run, or with --no-check. */
      estimate: estimate.nullable(),
    }),
    commands,
  ]),
  'run report': z.strictObject({file: text, size_bytes: count}),
  'run compare': compared,
  'run export': exported,
  verify: verified,
  'run verify': verified,
  estimate,
  'run estimate': estimate,
  preflight,
  rebuild: rebuilt,
  tick: z.union([z.strictObject({job: text, action: text, state: text}), z.strictObject({command: text})]),
  demo: z.strictObject({
    ...report,
    ...{verified: z.boolean(), status: text, reason: maybe, preemptions: count, seconds: count},
    shards_folder: text,
  }),
  'local up': z.union([
    z.strictObject({
      ...{ready: z.literal(true), url: text, project: text, bucket: text, dir: text},
      /** Address of the pages, with their token. */
      dashboard: text,
    }),
    z.strictObject({at: text, kind: text, run: maybe, text}),
  ]),
};
