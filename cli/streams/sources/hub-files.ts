/** Files of a split: by the metadata of the data set, else by the names of the files. */
import {matchesGlob} from 'node:path';
import {CliError} from '../../terminal/errors.ts';
import {listText} from '../../terminal/format.ts';
import type {Config} from './hub-card.ts';

export type HubFile = {path: string; size: number | undefined; sha256: string | undefined};
export type Choice = {split: string; config: string | undefined};
export type Chosen = {config: string; split: string; files: HubFile[]};

/** Words of the usual splits, as the hub reads them in names of files. */
const SPLITS: Record<string, string[]> = {
  train: ['train', 'training'],
  validation: ['validation', 'valid', 'val', 'dev'],
  test: ['test', 'testing', 'eval', 'evaluation'],
};
const SPLIT_WORDS = Object.values(SPLITS).flat();

/** `train_sft-00000-of-00002-0a1b.parquet`: the whole name before the numbers is the split. */
const PART = /^(.*?)[-_.](\d{3,6})[-_]of[-_](\d{3,6})(?=[-_.])/;

/** Files of the branch refs/convert/parquet: `CONFIG/SPLIT/0000.parquet`, and `partial-SPLIT` where only a part was converted. */
export function chooseConverted(
  files: readonly HubFile[],
  configs: readonly Config[],
  {split, config}: Choice,
): Chosen & {isPartial: boolean} {
  const parts = files.map(file => ({file, folders: file.path.split('/')}));
  const names = [...new Set(parts.map(({folders}) => folders[0] ?? ''))];
  const wanted = chooseConfig(names, configs.find(({isDefault}) => isDefault)?.name, config);
  const inConfig = parts.filter(({folders}) => folders[0] === wanted);
  const chosen = inConfig.filter(({folders}) => folders[1] === split || folders[1] === `partial-${split}`);
  if (chosen.length === 0)
    throw noSplit(
      split,
      inConfig.map(({folders}) => (folders[1] ?? '').replace(/^partial-/, '')),
    );
  const found = chosen.map(({file}) => file);
  const numbers = found.map(({path}) => Number(/(\d+)\.parquet$/.exec(path)?.[1] ?? Number.NaN));
  const missing = numbers.toSorted((a, b) => a - b).findIndex((number, index) => number !== index);
  if (missing >= 0)
    throw new CliError(`Part ${missing} of the split "${split}" is missing on the hub: ${LATER}`);
  return {
    config: wanted,
    split,
    files: found,
    isPartial: chosen.some(({folders}) => folders[1]?.startsWith('partial-')),
  };
}

/** Files of a split that the README names. `files` are all files of the repository. Throws `CliError`. */
export function chooseNamed(
  files: readonly HubFile[],
  configs: readonly Config[],
  {split, config}: Choice,
): Chosen {
  const names = configs.map(({name}) => name);
  const wanted = chooseConfig(names, configs.find(({isDefault}) => isDefault)?.name, config);
  const {splits, folder} = configs.find(({name}) => name === wanted) as Config;
  const inFolder = files.filter(({path}) => folder === '' || path.startsWith(`${folder}/`));
  if (splits === undefined) return {config: wanted, ...chooseByName(inFolder, split)};
  const patterns = splits.get(split);
  if (patterns === undefined) throw noSplit(split, [...splits.keys()]);
  const rows = inFolder.filter(({path}) => !isBesideRows(path));
  const found = patterns.flatMap(pattern => {
    // The hub refuses `**.parquet`, and a reader of globs takes it for `*.parquet`.
    if (pattern.split('/').some(part => part.includes('**') && part !== '**'))
      throw new CliError(
        `README.md names ${pattern} as the files of the split "${split}", where ** is a part of a name and may mean files or folders: download the files, and name them as the source`,
      );
    const matching = rows.filter(({path}) => matchesGlob(path, folder ? `${folder}/${pattern}` : pattern));
    if (matching.length > 0) return matching;
    throw new CliError(
      `README.md names ${pattern} as the files of the split "${split}", and no file has such a name: ${LATER}`,
    );
  });
  return {config: wanted, split, files: requireWhole(split, [...new Set(found)])};
}

/** True for files that the hub never takes for rows, whatever a pattern says. */
function isBesideRows(path: string): boolean {
  return /(?:^|\/)(?:\.[^/]*|README\.md|config\.json|dataset_infos?\.json)$/.test(path);
}

/** Files of a split by their names, such as `data/train-00000-of-00002.parquet` or `CONFIG/train/0.parquet`. A folder is a configuration. */
export function chooseOwn(files: readonly HubFile[], {split, config}: Choice): Chosen {
  const configs = [...new Set(files.map(({path}) => configOf(path, split)))];
  const wanted = chooseConfig(configs, undefined, config);
  return {
    config: wanted,
    ...chooseByName(
      files.filter(({path}) => configOf(path, split) === wanted),
      split,
    ),
  };
}

function chooseByName(all: readonly HubFile[], wanted: string): Omit<Chosen, 'config'> {
  const files = all.filter(({path}) => path.endsWith('.parquet'));
  // The caller takes the files that the hub converted.
  if (files.length === 0) return {split: wanted, files: []};
  const named = Map.groupBy(files, ({path}) => splitOf(path, wanted));
  const splits = [...named.keys()].filter(split => split !== undefined);
  // Without any split in a name, all files are the split of training.
  if (splits.length === 0 && wanted === 'train') return {split: wanted, files: [...files]};
  const words = SPLITS[wanted] ?? [wanted];
  const similar = splits.filter(split => wordsOf(split).some(word => words.includes(word)));
  const split = splits.includes(wanted) ? wanted : similar.length === 1 ? similar[0] : undefined;
  const found = split === undefined ? undefined : named.get(split);
  if (split === undefined || found === undefined)
    throw noSplit(wanted, splits.length > 0 ? splits : ['train']);
  return {split, files: requireWhole(split, found)};
}

/** Split that a path names: by a folder, by the numbers of its parts, or by the word of a usual split. */
function splitOf(path: string, wanted: string): string | undefined {
  const folders = path.split('/');
  const file = folders.pop() ?? '';
  const folder = folders.findLast(name => isSplit(name, wanted));
  if (folder !== undefined) return folder;
  const [, numbered] = PART.exec(file) ?? [];
  if (numbered !== undefined) return numbered;
  const name = file.replace(/\.parquet$/, '').replace(/[-_.]?\d+$/, '');
  return name === wanted || wordsOf(name).some(word => SPLIT_WORDS.includes(word)) ? name : undefined;
}

/** All folders of a path, but for `data` and the split. */
function configOf(path: string, wanted: string): string {
  const folders = path.split('/').slice(0, -1);
  return folders.filter(folder => folder !== 'data' && !isSplit(folder, wanted)).join('/') || 'default';
}

function isSplit(folder: string, wanted: string): boolean {
  return folder === wanted || SPLIT_WORDS.includes(folder.toLowerCase());
}

function wordsOf(name: string): string[] {
  return name.toLowerCase().split(/[^a-z]+/);
}

const LATER = 'try again later, or give an earlier --revision';

/** The files. Throws `CliError` where a numbered part is missing, or is there twice. */
function requireWhole(split: string, files: HubFile[]): HubFile[] {
  const parts = files.flatMap(({path}) => {
    const folder = path.slice(0, path.lastIndexOf('/') + 1);
    const [, name, part, total] = PART.exec(path.slice(folder.length)) ?? [];
    return name === undefined ? [] : [{set: folder + name, part: Number(part), total: Number(total)}];
  });
  for (const [set, ofSet] of Map.groupBy(parts, ({set}) => set)) {
    const totals = [...new Set(ofSet.map(({total}) => total))];
    if (totals.length > 1)
      throw new CliError(
        `The split "${split}" has parts of two sets of files, ${set} of ${totals.join(' and of ')}: ${LATER}`,
      );
    const numbers = new Set(ofSet.map(({part}) => part));
    const missing = Array.from({length: totals[0] ?? 0}, (_, part) => part).filter(
      part => !numbers.has(part),
    );
    if (missing.length > 0)
      throw new CliError(
        `The split "${split}" lacks ${missing.length === 1 ? 'part' : 'parts'} ${listText(missing.map(String), 5)} of ${totals[0]}, named ${set}: ${LATER}`,
      );
    if (numbers.size < ofSet.length)
      throw new CliError(`The split "${split}" has a part twice among the files named ${set}: ${LATER}`);
  }
  return files;
}

function chooseConfig(configs: string[], standard: string | undefined, wanted: string | undefined): string {
  const chosen = wanted ?? standard ?? (configs.includes('default') ? 'default' : undefined);
  if (chosen === undefined && configs.length > 1)
    throw new CliError(
      `There are several configurations of the data set: give --config with one of ${listText(configs)}`,
    );
  const found = chosen ?? configs[0];
  if (found === undefined || !configs.includes(found))
    throw new CliError(
      `There is no configuration "${found}" of the data set: give --config with one of ${listText(configs)}`,
    );
  return found;
}

export function noSplit(split: string, splits: string[]): CliError {
  return new CliError(
    `There is no split "${split}" of the data set: give --split with one of ${listText([...new Set(splits)])}`,
  );
}
