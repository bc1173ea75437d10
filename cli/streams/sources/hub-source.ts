/** Data sets of Hugging Face: Parquet files of one commit, read in parts over HTTP. */
import {matchesGlob} from 'node:path';
import {CliError} from '../../../client/text/errors.ts';
import {counted, listText} from '../../../client/text/format.ts';
import type {SourceOptions} from './formats.ts';
import {type Commit, type Hub, type HubFile, hubSettings, openHub} from './hub.ts';
import {openParquet, type ParquetFile, parquetRows, rowsIn} from './parquet.ts';
import type {RowSource, Watch} from './row.ts';

/** Branch of the Parquet files that the hub makes of a data set. */
const CONVERTED = 'refs/convert/parquet';
/** A file of that branch, `CONFIG/SPLIT/0000.parquet`. Of a large split the hub converts the first part alone, into `partial-SPLIT`. */
const CONVERTED_FILE = /^([^/]+)\/([^/]+)\/(\d{4,})\.parquet$/;

type DatasetCommit = Commit & {id: string};

/** Opens Parquet files, each as a source: those that `path` names, which may have `*`, else the converted files of the split. */
export async function openDataset(
  {id, path}: {id: string; path?: string | undefined},
  {revision, split = 'train', config, stop}: SourceOptions,
  say: (line: string) => void,
  hub = openHub(hubSettings()),
): Promise<RowSource[]> {
  const isWhole = path === undefined;
  const found = await readCommit(hub, id, revision ?? (isWhole ? CONVERTED : 'main'), stop);
  const files =
    found &&
    (isWhole
      ? convertedFiles(found, split, config)
      : found.files.filter(({name}) => name.endsWith('.parquet') && matchesGlob(name, path)));
  if (found && files && files.length > 0) {
    say(`${id}: ${counted(files.length, 'Parquet file')} at commit ${found.commit}`);
    return files.map(file => hubSource(hub, found, file));
  }
  const own = isWhole && revision === undefined ? await readCommit(hub, id, 'main', stop) : found;
  if (own === undefined)
    throw new CliError(
      revision === undefined
        ? `There is no file and no data set ${id} on ${hub.endpoint}: check the name`
        : `There is no revision ${revision} of a data set ${id} on ${hub.endpoint}: check --revision and the name`,
    );
  throw unnamed(own, isWhole ? `whole split "${split}" that the hub converted` : `Parquet file ${path}`);
}

/** Files of the split in the layout of the converted branch; undefined for another layout, and where only a part was converted. */
function convertedFiles(
  {files}: DatasetCommit,
  split: string,
  config: string | undefined,
): HubFile[] | undefined {
  const parts = files.flatMap(file => {
    const [, ofConfig = '', ofSplit = '', number] = CONVERTED_FILE.exec(file.name) ?? [];
    return number === undefined ? [] : [{file, config: ofConfig, split: ofSplit, number: Number(number)}];
  });
  if (parts.length === 0) return undefined;
  const configs = [...new Set(parts.map(part => part.config))];
  const wanted = config ?? (configs.length === 1 ? configs[0] : 'default');
  const inConfig = parts.filter(part => part.config === wanted);
  if (inConfig.length === 0)
    throw new CliError(
      config === undefined
        ? `The data set has several configurations: give --config with one of ${listText(configs)}`
        : `The data set has no configuration "${config}": give --config with one of ${listText(configs)}`,
    );
  const splits = [...new Set(inConfig.map(part => part.split))];
  if (splits.includes(`partial-${split}`)) return undefined;
  const inSplit = inConfig.filter(part => part.split === split).sort((a, b) => a.number - b.number);
  if (inSplit.length === 0)
    throw new CliError(
      `The data set has no split "${split}": give --split with one of ${listText(splits.map(name => name.replace(/^partial-/, '')))}`,
    );
  const missing = inSplit.findIndex(({number}, index) => number !== index);
  if (missing >= 0)
    throw new CliError(
      `Part ${missing} of the split "${split}" is missing on the hub: try again later, or give an earlier --revision`,
    );
  return inSplit.map(({file}) => file);
}

function unnamed({id, files}: DatasetCommit, lack: string): CliError {
  const paths = files.map(({name}) => name);
  const parquet = paths.filter(path => path.endsWith('.parquet'));
  return new CliError(
    parquet.length > 0
      ? `${id} has no ${lack}: name its Parquet files as the source hf://datasets/${id}/PATH, where PATH may have *; they are ${listText(parquet, 20)}`
      : `${id} has no ${lack}, and no Parquet file of its own: download its files (${listText(paths, 20)}), and name them as the source`,
  );
}

async function readCommit(
  hub: Hub,
  id: string,
  revision: string,
  stop: AbortSignal | undefined,
): Promise<DatasetCommit | undefined> {
  const found = await hub.commit('datasets', id, revision, stop);
  return found && {id, ...found};
}

function hubSource(hub: Hub, {id, commit}: DatasetCommit, file: HubFile): RowSource {
  const {size_bytes: size, sha256} = file;
  const name = `hf://datasets/${id}/${file.name}`;
  const path = `/datasets/${id}/resolve/${commit}/${file.name.split('/').map(encodeURIComponent).join('/')}`;
  let parquet: Promise<ParquetFile> | undefined;
  const open = ({stop}: Watch) => {
    const slice = (start: number, end = size) => hub.range(path, name, start, end, stop);
    parquet ??= openParquet(name, {byteLength: size, slice});
    return parquet;
  };
  return {
    ...{name, unit: 'row'},
    identity: async () => ({source: name, commit, bytes: size, ...(sha256 ? {sha256} : {})}),
    count: async (watch, most) => Math.min(most, rowsIn(await open(watch))),
    async *rows(watch, columns) {
      yield* parquetRows(await open(watch), watch, columns);
    },
  };
}
