/** Rows of a Parquet file, one row group in memory at a time. */
import {
  type AsyncBuffer,
  asyncBufferFromFile,
  type FileMetaData,
  parquetMetadataAsync,
  parquetReadObjects,
} from 'hyparquet';
import {compressors} from 'hyparquet-compressors';
import {CliError} from '../../terminal/errors.ts';
import {listText} from '../../terminal/format.ts';
import {FileSource} from './file-source.ts';
import type {Row, Watch} from './row.ts';

export type ParquetFile = {name: string; file: AsyncBuffer; metadata: FileMetaData};

export async function openParquet(name: string, file: AsyncBuffer): Promise<ParquetFile> {
  try {
    return {name, file, metadata: await parquetMetadataAsync(file)};
  } catch (error) {
    if (error instanceof CliError) throw error;
    throw new CliError(
      `${name} is not Parquet (${(error as Error).message}): check the file, or name its --format`,
      {cause: error},
    );
  }
}

export function rowsIn({metadata}: ParquetFile): number {
  return Number(metadata.num_rows);
}

/** Names of the columns, without those inside of other columns. */
export function columnsIn({metadata: {schema}}: ParquetFile): string[] {
  const names: string[] = [];
  let at = 1;
  const skip = () => {
    let children = schema[at++]?.num_children ?? 0;
    while (children-- > 0) skip();
  };
  while (at < schema.length) {
    names.push(schema[at]?.name ?? '');
    skip();
  }
  return names;
}

/** `first`: the number of rows before the file. */
export async function* parquetRows(
  parquet: ParquetFile,
  {stop, moved}: Watch,
  columns: readonly string[] | undefined,
  first = 0,
): AsyncGenerator<Row[]> {
  const {file, metadata, name} = parquet;
  const known = columnsIn(parquet);
  const absent = columns?.find(column => !known.includes(column));
  if (absent !== undefined)
    throw new CliError(`There is no column "${absent}" in ${name}: its columns are ${listText(known)}`);
  let at = 0;
  for (const group of metadata.row_groups) {
    stop.throwIfAborted();
    const [rowStart, rowEnd] = [at, at + Number(group.num_rows)];
    const wanted = columns ? {columns: [...columns]} : {};
    const range = {rowStart, rowEnd, compressors, utf8: false};
    let records: Record<string, unknown>[];
    try {
      records = await parquetReadObjects({file, metadata, ...range, ...wanted});
    } catch (error) {
      stop.throwIfAborted();
      if (error instanceof CliError) throw error;
      throw new CliError(
        `Failed to read rows ${rowStart} to ${rowEnd} of ${name}: ${(error as Error).message}`,
        {
          cause: error,
        },
      );
    }
    moved(Number(group.total_compressed_size ?? group.total_byte_size));
    yield records.map((record, index) => ({at: first + rowStart + index + 1, record}));
    at = rowEnd;
  }
}

/** Local Parquet file. */
export class ParquetFileSource extends FileSource {
  readonly unit = 'row';

  override async count(_watch: Watch, most: number): Promise<number> {
    return Math.min(most, rowsIn(await this.#open()));
  }

  async *rows(watch: Watch, columns: readonly string[] | undefined): AsyncGenerator<Row[]> {
    yield* parquetRows(await this.#open(), watch, columns);
  }

  async #open() {
    return openParquet(this.name, await asyncBufferFromFile(this.name));
  }
}
