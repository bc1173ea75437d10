/** Configurations and splits of a data set, as the metadata of its README names them. */
import {FAILSAFE_SCHEMA, load} from 'js-yaml';
import {z} from 'zod';
import {CliError} from '../../terminal/errors.ts';
import {repeatedOf} from './row.ts';

/** `splits`: the patterns of the files of each split. Undefined where the names of the files in `folder` show the splits. */
export type Config = {
  name: string;
  isDefault: boolean;
  splits: Map<string, string[]> | undefined;
  folder: string;
};

/** `rows`: the rows of each split of a configuration, as the README states them. */
export type Card = {configs: Config[]; stated: {config: string; rows: Map<string, number>}[]};

/** Without a schema of types, each scalar of YAML is a text: a configuration may be called 2024 or no. */
const patterns = z.union([z.string().transform(pattern => [pattern]), z.array(z.string())]);
const info = z.object({
  config_name: z.string().default('default'),
  splits: z
    .array(z.object({name: z.string(), num_examples: z.string().optional()}))
    .or(z.literal('').transform(() => []))
    .default([]),
});
const card = z.object({
  configs: z
    .array(
      z.object({
        config_name: z.string().default('default'),
        default: z.string().optional(),
        data_dir: z.string().optional(),
        data_files: z.union([patterns, z.array(z.object({split: z.string(), path: patterns}))]).optional(),
      }),
    )
    .optional(),
  dataset_info: z.union([info.transform(one => [one]), z.array(info)]).optional(),
});

/** Empty for a README without metadata. Throws `CliError` for metadata that the hub cannot read. */
export function cardOf(id: string, readme: string): Card {
  const [, yaml] = /^\ufeff?---[ \t]*\r?\n([\s\S]*?)\r?\n---[ \t]*(?:\r?\n|$)/.exec(readme) ?? [];
  const {configs = [], dataset_info = []} = yaml === undefined ? {} : parseCard(id, yaml);
  const twice = repeatedOf(configs.map(({config_name}) => config_name));
  if (twice !== undefined)
    throw new CliError(
      `README.md of ${id} describes the configuration "${twice}" twice: download the files, and name them as the source`,
    );
  return {
    configs: configs.map(({config_name, data_files, data_dir = '', ...given}) => ({
      name: config_name,
      isDefault: given.default?.toLowerCase() === 'true',
      folder: data_dir.replace(/^\.?\/+|\/+$/g, ''),
      splits: data_files && splitsOf(data_files),
    })),
    stated: dataset_info.map(({config_name, splits}) => ({
      config: config_name,
      rows: new Map(splits.map(({name, num_examples}) => [name, Number(num_examples ?? Number.NaN)])),
    })),
  };
}

function parseCard(id: string, yaml: string): z.infer<typeof card> {
  try {
    return card.parse(load(yaml, {schema: FAILSAFE_SCHEMA}) || {});
  } catch (error) {
    const problem =
      error instanceof z.ZodError
        ? `${error.issues[0]?.path.join('.')} has another form than the hub describes`
        : (error as Error).message.split('\n')[0];
    throw new CliError(
      `Failed to read the metadata in README.md of ${id}: ${problem}; download the files, and name them as the source`,
      {cause: error},
    );
  }
}

function splitsOf(files: string[] | {split: string; path: string[]}[]): Map<string, string[]> {
  const splits = new Map<string, string[]>();
  for (const each of files) {
    const {split, path} = typeof each === 'string' ? {split: 'train', path: [each]} : each;
    splits.set(split, [
      ...(splits.get(split) ?? []),
      ...path.map(pattern => pattern.replace(/^(\.?\/)+/, '')),
    ]);
  }
  return splits;
}
