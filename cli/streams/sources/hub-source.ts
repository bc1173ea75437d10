/** Data sets of Hugging Face: Parquet files of one commit, read in parts over HTTP. */
import {z} from 'zod';
import {CliError} from '../../terminal/errors.ts';
import {counted, numberText} from '../../terminal/format.ts';
import type {SourceOptions} from './formats.ts';
import {Hub, hubSettings} from './hub.ts';
import {type Card, cardOf} from './hub-card.ts';
import {
  type Choice,
  type Chosen,
  chooseConverted,
  chooseNamed,
  chooseOwn,
  type HubFile,
  noSplit,
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
  const card = await readCard(hub, own, stop);
  const choice = {split, config};
  const chosen = chooseFiles(own, card, choice);
  if (chosen) return sourcesOf(hub, own, chosen, card, say, stop);
  const converted = revision === undefined ? await readCommit(hub, id, CONVERTED, stop) : undefined;
  const files = converted?.files.filter(isParquet) ?? [];
  if (!converted || files.length === 0)
    throw new CliError(
      `The split "${split}" of ${id}${revision === undefined ? '' : ` at ${revision}`} has no Parquet files, or others beside them: download its files, and name them as the source`,
    );
  const found = chooseConverted(files, card.configs, choice);
  if (found.isPartial)
    say(`${id}: the hub has converted only the first part of the split; the streams have that part`);
  return sourcesOf(hub, converted, found, card, say, stop);
}

/** Files of the split; undefined where they are not Parquet. */
function chooseFiles({files}: Commit, {configs, stated}: Card, choice: Choice): Chosen | undefined {
  const parquet = files.filter(isParquet);
  if (configs.length > 0) {
    const chosen = chooseNamed(files, configs, choice);
    return chosen.files.length > 0 && chosen.files.every(isParquet) ? chosen : undefined;
  }
  if (parquet.length === 0) return undefined;
  const chosen = chooseOwn(parquet, choice);
  // Without a split in their names, the files would be those of training.
  const {rows} = stated.find(({config}) => config === chosen.config) ?? {};
  if (rows && rows.size > 0 && ![chosen.split, choice.split].some(split => rows.has(split)))
    throw noSplit(choice.split, [...rows.keys()]);
  return chosen;
}

function isParquet({path}: HubFile): boolean {
  return path.endsWith('.parquet');
}

async function readCard(hub: Hub, {id, commit, files}: Commit, stop: AbortSignal | undefined): Promise<Card> {
  if (!files.some(({path}) => path === 'README.md')) return {configs: [], stated: []};
  const path = `/datasets/${id}/resolve/${commit}/README.md`;
  return cardOf(id, await hub.text(path, `README.md of ${id}`, MOST_README_BYTES, stop));
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

async function sourcesOf(
  hub: Hub,
  commit: Commit,
  {config, split, files}: Chosen,
  {stated}: Card,
  say: (line: string) => void,
  stop = new AbortController().signal,
): Promise<RowSource[]> {
  const many = counted(files.length, 'Parquet file');
  say(`${commit.id}, configuration ${config}, split ${split}: ${many} at commit ${commit.commit}`);
  const sources = files.map(file => new HubSource(hub, commit, file));
  const rows = stated.find(each => each.config === config)?.rows.get(split) ?? Number.NaN;
  if (Number.isNaN(rows)) return sources;
  let found = 0;
  for (const source of sources)
    found += await source.count({stop, moved: () => {}}, Number.POSITIVE_INFINITY);
  if (found !== rows)
    say(
      `${commit.id}: README.md states ${counted(rows, 'row')} of the split ${split}, and its files have ${numberText(found)}`,
    );
  return sources;
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
