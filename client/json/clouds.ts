/** Answers of the commands that build, deploy or describe a cloud. */
import {z} from 'zod';
import {text} from './fields.ts';

const setting = z.strictObject({
  name: text,
  value: z.union([text, z.number(), z.boolean(), z.null()]),
  /** Left out without `--show-origin`. */
  origin: text.optional(),
});

const artifact = z.strictObject({file: text, sha256: text, size_bytes: z.number().int()});

const mostAnHour = z.strictObject({
  /** Null for an accelerator without a list price. */
  tpus_usd: z.number().nullable(),
  functions_usd: z.number(),
  nat_usd: z.number(),
  max_workers: z.number().int(),
  accelerator: text,
  dearest_zone: text,
  zones: z.array(text),
});

/** `saw`: evidence, or the cause of the failure. */
export const smokeResult = z.strictObject({
  status: z.enum(['passed', 'failed', 'only on Google Cloud']),
  saw: text,
});

export const cloudAnswers = {
  'cloud list': z.strictObject({
    clouds: z.array(
      z.strictObject({
        /** `PROJECT/DEPLOYMENT`, or the folder of a local cloud. */
        name: text,
        state: z.enum(['running', 'stopped', 'Google Cloud']),
        /** Folders for which the user chose it. */
        folders: z.array(text),
        /** True for the cloud of commands in the current folder. */
        current: z.boolean(),
      }),
    ),
  }),
  'cloud use': z.strictObject({name: text, folder: text}),
  'cloud forget': z.strictObject({name: text, folders: z.array(text)}),
  'config show': z.strictObject({settings: z.array(setting)}),
  build: z.strictObject({
    ...{dist: text, variables: text, module: text},
    ...{functions: artifact, bundle: artifact},
    /** Left out before its first build. */
    environment: artifact.optional(),
    /** Software bill of materials, and how many packages have each licence. */
    sbom: z.strictObject({
      file: text,
      components: z.number().int(),
      licences: z.record(text, z.number().int()),
    }),
  }),
  doctor: z.strictObject({
    findings: z.array(
      z.strictObject({
        check: text,
        severity: z.enum(['ok', 'warning', 'error', 'skipped']),
        evidence: text,
        /** Command that mends it, or the next step. */
        cure: text.nullable(),
      }),
    ),
  }),
  smoke: z.strictObject({
    ok: z.boolean(),
    spent_usd: z.number(),
    steps: z.array(z.strictObject({step: text, ...smokeResult.shape})),
  }),
  destroy: z.strictObject({
    /** False with --dry-run. */
    destroyed: z.boolean(),
    goes: z.array(text),
    stays: z.array(z.strictObject({what: text, command: text})),
  }),
  deploy: z.union([
    z.strictObject({mocked: z.boolean(), project: text, resources: z.array(text), most_an_hour: mostAnHour}),
    z.strictObject({deployed: text, project: text, outputs: z.record(text, z.unknown())}),
  ]),
};

export type MostAnHour = z.infer<typeof mostAnHour>;
