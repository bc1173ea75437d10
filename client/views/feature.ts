/** A feature of a run, as the reader exports it: how often it is active, how strongly, and in which texts. */
import {z} from 'zod';
import {runRecords} from '../../shared/control-plane/documents/documents.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {readResult} from './run-state.ts';

const count = z.int().nonnegative();
const byStream = <T extends z.ZodType>(value: T) => z.record(z.string().regex(/^\d{1,9}$/), value);
const list = <T extends z.ZodType>(value: T) => z.array(value).max(100);
const example = z.strictObject({
  ...{stream: count, sample: count, position: count.nullable(), score: z.number()},
  kept: z.record(z.string(), z.unknown()),
  tokens: list(z.string().max(10_000).nullable()).optional(),
  token_ids: list(count.nullable()).optional(),
  values: list(z.number()),
});

/** `at_least`: rows were cut, so `active` and `density` may be too small. `histogram`: values by half octaves from 2^-16 to 2^16. */
export const featureFile = z.strictObject({
  ...{name: z.string(), layer: count, id: count, active: count, density: z.number(), at_least: z.boolean()},
  ...{max: z.number(), by_stream: byStream(count), density_by_stream: byStream(z.number())},
  histogram: z.array(count).length(64),
  examples: list(example),
});
export type Feature = z.infer<typeof featureFile>;

type FeatureOf = {run: string; name: string; layer: number; id: number};
/** `version`: of the shards of a completed run; another run may have had its name. */
export type FeatureAsked = FeatureOf & {version: string; isComplete: boolean};
/** A feature, or what is known in its place. `isUnread`: nothing reads it before a person says so. */
export type FeatureKnown = {feature: Feature} | {text: string; isUnread: boolean};

/** Reads features in the background, one at a time, and each once. A reading ends when no page asks any more. */
export type FeatureReader = {
  read(asked: FeatureAsked, mayRead: boolean): Promise<FeatureKnown>;
  close(): void;
};

/** The reductions of a run that are features; a run without any has none. */
export function featuresOf({spec}: Run): {name: string}[] {
  return z.array(z.object({name: z.string()})).safeParse(spec?.features).data ?? [];
}

/** What a page asks for; undefined if no run has such features. */
export async function askedFeature(
  {store, objects}: Cloud,
  {run, ...wanted}: FeatureOf,
): Promise<FeatureAsked | undefined> {
  const found = await runRecords.get(store, run);
  if (!found || !featuresOf(found).some(({name}) => name === wanted.name)) return undefined;
  const digest = found.status === 'completed' ? (await readResult(objects, run))?.digest : undefined;
  return {run, version: `${found.created_at} ${digest}`, isComplete: digest !== undefined, ...wanted};
}
