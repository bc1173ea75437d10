/** Answers of the commands that build, deploy or describe a cloud. */
import {z} from 'zod';

const setting = z.strictObject({
  name: z.string(),
  value: z.union([z.string(), z.number(), z.boolean(), z.null()]),
  /** Left out without `--show-origin`. */
  origin: z.string().optional(),
});

const artifact = z.strictObject({file: z.string(), sha256: z.string(), size_bytes: z.number().int()});

const mostAnHour = z.strictObject({
  /** Null for an accelerator without a list price. */
  tpus_usd: z.number().nullable(),
  functions_usd: z.number(),
  nat_usd: z.number(),
  max_workers: z.number().int(),
  accelerator: z.string(),
  dearest_zone: z.string(),
  zones: z.array(z.string()),
});

export const cloudAnswers = {
  'config show': z.strictObject({settings: z.array(setting)}),
  build: z.strictObject({
    ...{dist: z.string(), variables: z.string(), module: z.string()},
    ...{functions: artifact, bundle: artifact},
  }),
  deploy: z.union([
    z.strictObject({
      mocked: z.boolean(),
      project: z.string(),
      resources: z.array(z.string()),
      most_an_hour: mostAnHour,
    }),
    z.strictObject({deployed: z.string(), project: z.string(), outputs: z.record(z.string(), z.unknown())}),
  ]),
};

export type MostAnHour = z.infer<typeof mostAnHour>;
