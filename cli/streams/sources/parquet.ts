/** Rows of a Parquet file, one row group in memory at a time. */
import {setImmediate} from 'node:timers/promises';
import {
  type AsyncBuffer,
  asyncBufferFromFile,
  type Compressors,
  type FileMetaData,
  parquetMetadataAsync,
  parquetRead,
  parquetSchema,
  type SchemaTree,
} from 'hyparquet';
import {compressors as decompressors} from 'hyparquet-compressors';
import {CliError} from '../../../client/text/errors.ts';
import {listText} from '../../../client/text/format.ts';
import {columnsOfDurations} from './arrow-schema.ts';
import {FileSource} from './file-source.ts';
import {columnMaker, NoText, PHYSICAL, physicalSchema} from './parquet-values.ts';
import {type Cell, type Cells, type Columns, type Row, requireUnique, rowError, type Watch} from './row.ts';

/** A page of nulls alone is empty, and LZ4 of the library fails for it. */
const compressors: Compressors = Object.fromEntries(
  Object.entries(decompressors).map(([codec, unpack]) => [
    codec,
    (input: Uint8Array, length: number) => (length === 0 ? new Uint8Array() : unpack(input, length)),
  ]),
);

/** `columns`: the columns, without those inside of other columns. `durations`: names of those with values of Arrow's type duration. */
export type ParquetFile = {
  name: string;
  file: AsyncBuffer;
  metadata: FileMetaData;
  columns: SchemaTree[];
  durations: ReadonlySet<string>;
};

/** Throws `CliError` for a file that is not Parquet, and for a column that is there twice. */
export async function openParquet(name: string, file: AsyncBuffer): Promise<ParquetFile> {
  if (file.byteLength === 0) throw new CliError(`${name} is empty: copy it again`);
  try {
    const metadata = await parquetMetadataAsync(file, {parsers: PHYSICAL, geoparquet: false});
    const {children} = parquetSchema(metadata);
    requireOnce(name, children, '');
    if (metadata.row_groups.reduce((sum, group) => sum + group.num_rows, 0n) !== metadata.num_rows)
      throw new Error('its row groups have other rows than it states');
    const arrow = metadata.key_value_metadata?.find(({key}) => key === 'ARROW:schema')?.value;
    const durations = columnsOfDurations(arrow ?? '');
    const physical = {...metadata, schema: physicalSchema(metadata.schema)};
    return {name, file, metadata: physical, columns: children, durations};
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

function requireOnce(file: string, nodes: SchemaTree[], inside: string): void {
  const names = nodes.map(({element}) => element.name);
  requireUnique(file, names, inside);
  // The library would lose the column.
  if (inside !== '' && names.includes('__proto__'))
    throw new CliError(`${file} has the column "${inside}__proto__", which no object can have: rename it`);
  for (const {element, children} of nodes) requireOnce(file, children, `${inside}${element.name}.`);
}

export async function* parquetRows(
  parquet: ParquetFile,
  {stop, moved}: Watch,
  wanted: Columns | undefined,
): AsyncGenerator<Row[]> {
  const {file, metadata, name} = parquet;
  const columns = makersOf(parquet, wanted);
  const all = parquet.columns.map(({element}) => element.name);
  let at = 0;
  for (const group of metadata.row_groups) {
    stop.throwIfAborted();
    const [rowStart, rowEnd] = [at, at + Number(group.num_rows)];
    let rows: unknown[][] = [];
    try {
      await parquetRead({
        file,
        metadata,
        rowStart,
        rowEnd,
        columns: columns.map(column => column.name),
        compressors,
        utf8: false,
        parsers: PHYSICAL,
        geoparquet: false,
        onComplete: (read: unknown[][]) => {
          rows = read;
        },
      });
      // The library does not wait between pages: signals and progress come now.
      await setImmediate();
      stop.throwIfAborted();
    } catch (error) {
      stop.throwIfAborted();
      if (error instanceof CliError) throw error;
      throw new CliError(
        `Failed to read rows ${rowStart + 1} to ${rowEnd} of ${name}: ${(error as Error).message}`,
        {cause: error},
      );
    }
    moved(Number(group.total_compressed_size ?? group.total_byte_size));
    yield rows.map((values, index) => parquetRow(name, rowStart + index + 1, all, columns, values));
    at = rowEnd;
  }
}

type Column = {name: string; make: (value: unknown) => Cell};

function makersOf({name: file, columns, durations}: ParquetFile, wanted: Columns | undefined): Column[] {
  const names = columns.map(({element}) => element.name);
  const absent = wanted?.of.find(column => !names.includes(column));
  if (absent !== undefined)
    throw new CliError(`There is no column "${absent}" in ${file}: its columns are ${listText(names)}`);
  return columns
    .filter(({element: {name}}) => !wanted || wanted.of.includes(name) || wanted.also.includes(name))
    .map(node => {
      const {name} = node.element;
      try {
        if (durations.has(name))
          throw new NoText(
            'has the type duration, whose unit would be lost; write it as text or as a number',
          );
        return {name, make: columnMaker(node)};
      } catch (error) {
        if (!(error instanceof NoText)) throw error;
        throw new CliError(
          `${file}: column "${name}" ${error.message}, or choose other columns by --column and --keep`,
        );
      }
    });
}

/** Makes its cells when they are read: a row beside the range is never refused. */
function parquetRow(
  file: string,
  at: number,
  all: readonly string[],
  made: Column[],
  values: unknown[],
): Row {
  return {
    at,
    columns: all,
    get cells(): Cells {
      const cells = new Map<string, Cell>();
      for (const [index, {name, make}] of made.entries())
        try {
          cells.set(name, make(values[index]));
        } catch (error) {
          if (!(error instanceof NoText)) throw error;
          throw rowError({name: file, unit: 'row'}, {at}, `column "${name}" ${error.message}`);
        }
      return cells;
    },
  };
}

export class ParquetFileSource extends FileSource {
  readonly unit = 'row';

  override async count(_watch: Watch, most: number): Promise<number> {
    return Math.min(most, rowsIn(await this.#open()));
  }

  async *rows(watch: Watch, columns: Columns | undefined): AsyncGenerator<Row[]> {
    yield* parquetRows(await this.#open(), watch, columns);
  }

  async #open() {
    return openParquet(this.name, await asyncBufferFromFile(this.name));
  }
}
