/** Parquet files of a split, by their paths in a repository. */
import {CliError} from '../../terminal/errors.ts';
import {listText} from '../../terminal/format.ts';

export type HubFile = {path: string; size: number | undefined; sha256: string | undefined};
export type Choice = {split: string; config: string | undefined};

/** Names of splits that a path can have, so that a path without one belongs to `train`. */
const SPLITS = ['train', 'test', 'validation', 'valid', 'val', 'dev', 'eval', 'evaluation'];

/** Files of the branch refs/convert/parquet: `CONFIG/SPLIT/0000.parquet`, and `partial-SPLIT` where only a part was converted. */
export function chooseConverted(
  files: readonly HubFile[],
  {split, config}: Choice,
): {files: HubFile[]; isPartial: boolean} {
  const parts = files.map(file => ({file, folders: file.path.split('/')}));
  const configs = [...new Set(parts.map(({folders}) => folders[0] ?? ''))];
  const wanted = chooseConfig(configs, config);
  const inConfig = parts.filter(({folders}) => folders[0] === wanted);
  const chosen = inConfig.filter(({folders}) => folders[1] === split || folders[1] === `partial-${split}`);
  if (chosen.length === 0)
    throw noSplit(
      split,
      inConfig.map(({folders}) => (folders[1] ?? '').replace(/^partial-/, '')),
    );
  return {
    files: chosen.map(({file}) => file),
    isPartial: chosen.some(({folders}) => folders[1]?.startsWith('partial-')),
  };
}

/** Files that a repository has itself, such as `data/train-00000-of-00002.parquet` or `CONFIG/train/0.parquet`. */
export function chooseOwn(files: readonly HubFile[], {split, config}: Choice): HubFile[] {
  const parts = files.map(file => ({
    file,
    split: splitOf(file.path, split),
    config: configOf(file.path, split),
  }));
  const wanted = chooseConfig([...new Set(parts.map(part => part.config))], config);
  const inConfig = parts.filter(part => part.config === wanted);
  const hasSplits = inConfig.some(part => part.split !== undefined);
  const chosen = inConfig.filter(part => (hasSplits ? part.split === split : split === 'train'));
  if (chosen.length === 0)
    throw noSplit(
      split,
      inConfig.map(part => part.split ?? 'train'),
    );
  return chosen.map(({file}) => file);
}

/** Split that a path names as a word. */
function splitOf(path: string, wanted: string): string | undefined {
  const words = path.toLowerCase().split(/[^a-z0-9]+/);
  return [wanted.toLowerCase(), ...SPLITS].find(split => words.includes(split));
}

/** First folder of a path, unless it is `data` or a split. */
function configOf(path: string, split: string): string {
  const folders = path.split('/').slice(0, -1);
  const first = folders.find(folder => folder !== 'data' && splitOf(folder, split) === undefined);
  return first ?? 'default';
}

function chooseConfig(configs: string[], wanted: string | undefined): string {
  const chosen = wanted ?? (configs.includes('default') ? 'default' : configs[0]);
  if (wanted === undefined && configs.length > 1 && chosen !== 'default')
    throw new CliError(
      `There are several configurations of the data set: give --config with one of ${listText(configs)}`,
    );
  if (chosen === undefined || !configs.includes(chosen))
    throw new CliError(
      `There is no configuration "${wanted}" of the data set: give --config with one of ${listText(configs)}`,
    );
  return chosen;
}

function noSplit(split: string, splits: string[]): CliError {
  return new CliError(
    `There is no split "${split}" of the data set: give --split with one of ${listText([...new Set(splits)])}`,
  );
}
