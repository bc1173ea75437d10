/** Data sets of Hugging Face: Parquet files of one commit, read in parts over HTTP. */
import {z} from 'zod';
import {CliError} from '../../terminal/errors.ts';
import {counted} from '../../terminal/format.ts';
import type {SourceOptions} from './formats.ts';
import {Hub, hubSettings} from './hub.ts';
import {type Config, configsOf} from './hub-card.ts';
import {
  type Choice,
  type Chosen,
  chooseConverted,
  chooseNamed,
  chooseOwn,
  type HubFile,
} from './hub-files.ts';
import {openParquet, type ParquetFile, parquetRows, rowsIn} from './parquet.ts';
import type {Columns, Row, RowSource, SourceIdentity, Watch} from './row.ts';

/** Branch of the Parquet files that the hub makes of other formats. */
const CONVERTED = 'refs/convert/parquet';
const MOST_README_BYTES = 4 << 20;

const listing = z.object({
  sha: z.string().regex(/^[0-9a-f]{40}$/),
  siblings: z.array(
    z.object({
      // A path with .. would leave the data set.
      rfilename: z.string().refine(path => !path.split('/').includes('..'), 'a path without ..'),
      size: z.number().int().min(0).optional(),
      lfs: z.object({sha256: z.string().optional()}).nullish(),
    }),
  ),
});

type Commit = {id: string; commit: string; files: HubFile[]};

/** Opens the Parquet files of one split, each as a source. */
export async function openDataset(
  id: string,
  {revision, split = 'train', config, stop}: SourceOptions,
  say: (line: string) => void,
  hub = new Hub(hubSettings()),
): Promise<RowSource[]> {
  const own = await readCommit(hub, id, revision ?? 'main', stop);
  if (own === undefined)
    throw new CliError(
      revision === undefined
        ? `There is no file and no data set ${id} on ${hub.endpoint}: check the name`
        : `There is no revision ${revision} of a data set ${id} on ${hub.endpoint}: check --revision and the name`,
    );
  const configs = await readConfigs(hub, own, stop);
  const choice = {split, config};
  const chosen = chooseFiles(own, configs, choice);
  if (chosen) return sourcesOf(hub, own, chosen, say);
  const converted = revision === undefined ? await readCommit(hub, id, CONVERTED, stop) : undefined;
  const files = converted?.files.filter(isParquet) ?? [];
  if (!converted || files.length === 0)
    throw new CliError(
      `There is no Parquet file in ${id}${revision === undefined ? '' : ` at ${revision}`}: download its files, and name them as the source`,
    );
  const found = chooseConverted(files, configs, choice);
  if (found.isPartial)
    say(`${id}: the hub has converted only the first part of the split; the streams have that part`);
  return sourcesOf(hub, converted, found, say);
}

/** Files of the split; undefined where they are not Parquet. */
function chooseFiles({files}: Commit, configs: readonly Config[], choice: Choice): Chosen | undefined {
  const parquet = files.filter(isParquet);
  if (configs.length > 0) {
    const chosen = chooseNamed(files, configs, choice);
    return chosen.files.length > 0 && chosen.files.every(isParquet) ? chosen : undefined;
  }
  return parquet.length > 0 ? chooseOwn(parquet, choice) : undefined;
}

function isParquet({path}: HubFile): boolean {
  return path.endsWith('.parquet');
}

/** Configurations of the README; empty without them. */
async function readConfigs(
  hub: Hub,
  {id, commit, files}: Commit,
  stop: AbortSignal | undefined,
): Promise<Config[]> {
  const readme = files.find(({path}) => path === 'README.md');
  if (!readme) return [];
  const path = `/datasets/${id}/resolve/${commit}/README.md`;
  return configsOf(id, await hub.text(path, `README.md of ${id}`, MOST_README_BYTES, stop));
}

async function readCommit(
  hub: Hub,
  id: string,
  revision: string,
  stop: AbortSignal | undefined,
): Promise<Commit | undefined> {
  const listed = await hub.listing('datasets', id, revision, listing, stop);
  if (listed === undefined) return undefined;
  const files = listed.siblings
    .map(({rfilename, size, lfs}) => ({path: rfilename, size, sha256: lfs?.sha256}))
    .sort((a, b) => (a.path < b.path ? -1 : 1));
  return {id, commit: listed.sha, files};
}

function sourcesOf(
  hub: Hub,
  commit: Commit,
  {config, split, files}: Chosen,
  say: (line: string) => void,
): RowSource[] {
  const many = counted(files.length, 'Parquet file');
  say(`${commit.id}, configuration ${config}, split ${split}: ${many} at commit ${commit.commit}`);
  return files.map(file => new HubSource(hub, commit, file));
}

class HubSource implements RowSource {
  readonly name: string;
  readonly unit = 'row';
  readonly #hub: Hub;
  readonly #commit: string;
  readonly #file: HubFile;
  readonly #path: string;
  #parquet: Promise<ParquetFile> | undefined;

  constructor(hub: Hub, {id, commit}: Commit, file: HubFile) {
    this.name = `hf://datasets/${id}/${file.path}`;
    this.#hub = hub;
    this.#commit = commit;
    this.#file = file;
    const path = file.path.split('/').map(encodeURIComponent).join('/');
    this.#path = `/datasets/${id}/resolve/${commit}/${path}`;
  }

  async identity(watch: Watch): Promise<SourceIdentity> {
    const {sha256} = this.#file;
    const {file} = await this.#open(watch);
    return {source: this.name, commit: this.#commit, bytes: file.byteLength, ...(sha256 ? {sha256} : {})};
  }

  async count(watch: Watch, most: number): Promise<number> {
    return Math.min(most, rowsIn(await this.#open(watch)));
  }

  async *rows(watch: Watch, columns: Columns | undefined): AsyncGenerator<Row[]> {
    yield* parquetRows(await this.#open(watch), watch, columns);
  }

  #open({stop}: Watch): Promise<ParquetFile> {
    this.#parquet ??= this.#size(stop).then(byteLength =>
      openParquet(this.name, {
        byteLength,
        slice: async (start, end = byteLength) =>
          (await this.#hub.range(this.#path, this.name, start, end, stop)).bytes,
      }),
    );
    return this.#parquet;
  }

  async #size(stop: AbortSignal): Promise<number> {
    if (this.#file.size !== undefined) return this.#file.size;
    return (await this.#hub.range(this.#path, this.name, 0, 4, stop)).size;
  }
}
