/** Rows of a Parquet file, one row group in memory at a time. */
import {setImmediate} from 'node:timers/promises';
import {
  type AsyncBuffer,
  asyncBufferFromFile,
  type ColumnMetaData,
  type Compressors,
  type FileMetaData,
  parquetMetadataAsync,
  parquetRead,
  parquetSchema,
  type RowGroup,
  type SchemaElement,
  type SchemaTree,
} from 'hyparquet';
import {compressors as decompressors} from 'hyparquet-compressors';
import {CliError} from '../../terminal/errors.ts';
import {bytesText, listText} from '../../terminal/format.ts';
import {isInflated, LIMITS} from '../limits.ts';
import {columnsOfDurations} from './arrow-schema.ts';
import {FileSource} from './file-source.ts';
import {type ChunkSize, Inflated, sizeOfChunk} from './parquet-pages.ts';
import {columnMaker, NoText, PHYSICAL, physicalSchema} from './parquet-values.ts';
import {type Cell, type Cells, type Columns, type Row, requireUnique, rowError, type Watch} from './row.ts';

/** Columns that the library reads without a pause. */
const COLUMNS_AT_ONCE = 16;

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
    await requireFooter(file);
    const metadata = await parquetMetadataAsync(file, {parsers: PHYSICAL, geoparquet: false});
    requireSchema(metadata.schema);
    const {children} = parquetSchema(metadata);
    requireOnce(name, children, '');
    requireRows(metadata, file.byteLength);
    const arrow = metadata.key_value_metadata?.find(({key}) => key === 'ARROW:schema')?.value;
    const durations = columnsOfDurations(arrow ?? '');
    const physical = {...metadata, schema: physicalSchema(metadata.schema)};
    return {name, file, metadata: physical, columns: children, durations};
  } catch (error) {
    if (error instanceof CliError) throw error;
    if (error instanceof Inflated) throw new CliError(`${name} ${error.message}`, {cause: error});
    throw new CliError(
      `${name} is not Parquet (${(error as Error).message}): check the file, or name its --format`,
      {cause: error},
    );
  }
}

async function requireFooter(file: AsyncBuffer): Promise<void> {
  if (file.byteLength < 8) return;
  const end = new DataView(await file.slice(file.byteLength - 8, file.byteLength));
  const bytes = end.getUint32(0, true);
  if (bytes > LIMITS.footer_bytes && bytes < file.byteLength)
    throw new Inflated(
      `has a footer of ${bytesText(bytes)}, and the most is ${bytesText(LIMITS.footer_bytes)}: write it again with fewer columns or row groups in each file`,
    );
}

/** The library builds a tree of the schema for each row group, and goes down its levels by calls of itself. */
function requireSchema(schema: readonly SchemaElement[]): void {
  if (schema.length > LIMITS.columns)
    throw new Inflated(
      `has ${schema.length} columns, and the most is ${LIMITS.columns}: write it again with fewer columns`,
    );
  /** Children that are missing at each level. */
  const open: number[] = [];
  for (const {num_children = 0} of schema) {
    if (num_children < 0 || num_children >= schema.length)
      throw new Inflated(`claims a column with ${num_children} columns inside: copy it again`);
    if (num_children > 0) open.push(num_children);
    else {
      while (open.at(-1) === 1) open.pop();
      if (open.length > 0) open[open.length - 1] = (open.at(-1) as number) - 1;
    }
    if (open.length > LIMITS.schema_depth)
      throw new Inflated(
        `has columns that are nested deeper than ${LIMITS.schema_depth} levels: write it again with flat columns`,
      );
  }
}

function requireRows({num_rows, row_groups}: FileMetaData, file_bytes: number): void {
  const counts = row_groups.map(group => Number(group.num_rows));
  const sum = counts.reduce((all, count) => all + count, 0);
  if (counts.some(count => count < 0) || sum !== Number(num_rows))
    throw new Inflated(`claims ${num_rows} rows, and its row groups have ${sum}: copy it again`);
  if (isInflated(sum, file_bytes))
    throw new Inflated(
      `claims ${num_rows} rows in ${bytesText(file_bytes)}, which is more than ${LIMITS.ratio} for each byte: copy it again`,
    );
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
  const refused = parquet.columns.filter(node => columnOf(node, parquet.durations) instanceof NoText);
  const unreadable = new Set(refused.map(({element}) => element.name));
  let at = 0;
  for (const group of metadata.row_groups) {
    stop.throwIfAborted();
    const [rowStart, rowEnd] = [at, at + Number(group.num_rows)];
    let rows: unknown[][] | undefined;
    try {
      const bounded = new BoundedGroup(file, group);
      for (let first = 0; first < columns.length; first += COLUMNS_AT_ONCE) {
        const names = columns.slice(first, first + COLUMNS_AT_ONCE).map(({name}) => name);
        await parquetRead({
          file: bounded.only(names),
          metadata,
          rowStart,
          rowEnd,
          columns: names,
          compressors,
          utf8: false,
          parsers: PHYSICAL,
          geoparquet: false,
          onComplete: (read: unknown[][]) => {
            if (rows === undefined) rows = read;
            else for (const [index, values] of read.entries()) rows[index]?.push(...values);
          },
        });
        // The library does not wait between pages: signals and progress come now.
        await setImmediate();
        stop.throwIfAborted();
      }
    } catch (error) {
      stop.throwIfAborted();
      if (error instanceof CliError) throw error;
      if (error instanceof Inflated)
        throw new CliError(`${name}, rows ${rowStart + 1} to ${rowEnd}, ${error.message}`, {cause: error});
      throw new CliError(
        `Failed to read rows ${rowStart + 1} to ${rowEnd} of ${name}: ${(error as Error).message}`,
        {cause: error},
      );
    }
    moved(Number(group.total_compressed_size ?? group.total_byte_size));
    yield (rows ?? []).map(
      (values, index) => new ParquetRow(name, rowStart + index + 1, {all, unreadable}, columns, values),
    );
    at = rowEnd;
  }
}

/** The bytes of a row group, which the library gets only after their pages are checked. */
class BoundedGroup {
  readonly #file: AsyncBuffer;
  readonly #group: RowGroup;
  readonly #sizes = {values: 0, unpacked_bytes: 0};

  constructor(file: AsyncBuffer, group: RowGroup) {
    this.#file = file;
    this.#group = group;
  }

  /** The file for a read of these columns. The library reads whole chunks. Throws `Inflated`. */
  only(names: readonly string[]): AsyncBuffer {
    const wanted = new Set(names);
    const chunks = this.#group.columns.flatMap(({meta_data}) =>
      meta_data && wanted.has(meta_data.path_in_schema[0] ?? '') ? [meta_data] : [],
    );
    const {byteLength} = this.#file;
    const slice = async (start: number, end = byteLength) => {
      const bytes = await this.#file.slice(start, end);
      const inside = chunks.filter(chunk => {
        const [from, to] = rangeOf(chunk);
        return start <= from && to <= end && from <= to;
      });
      if (inside.length === 0) throw new Error('a column lies outside of the file');
      for (const chunk of inside) {
        const [from, to] = rangeOf(chunk);
        this.#add(chunk, sizeOfChunk(new Uint8Array(bytes, from - start, to - from)));
      }
      return bytes;
    };
    return {byteLength, slice};
  }

  #add({path_in_schema}: ColumnMetaData, {values, unpacked_bytes}: ChunkSize): void {
    if (values < Number(this.#group.num_rows))
      throw new Inflated(
        `claims ${this.#group.num_rows} rows, and column "${path_in_schema.join('.')}" has ${values} values: copy it again`,
      );
    const sizes = this.#sizes;
    sizes.values += values * path_in_schema.length;
    sizes.unpacked_bytes += unpacked_bytes;
    if (sizes.values > LIMITS.group_values || sizes.unpacked_bytes > LIMITS.group_bytes)
      throw new Inflated(
        `needs memory for more than ${LIMITS.group_values} values or ${bytesText(LIMITS.group_bytes)} at once: choose fewer columns, or write the file again with smaller row groups`,
      );
  }
}

/** First byte of a chunk, and the byte after its last one. */
function rangeOf({dictionary_page_offset, data_page_offset, total_compressed_size}: ColumnMetaData) {
  const start = dictionary_page_offset || data_page_offset;
  return [Number(start), Number(start + total_compressed_size)] as const;
}

/** Names of all columns, and of those whose type is refused. */
type Names = {all: readonly string[]; unreadable: ReadonlySet<string>};
type Column = {name: string; make: (value: unknown) => Cell};

function makersOf({name: file, columns, durations}: ParquetFile, wanted: Columns | undefined): Column[] {
  const names = columns.map(({element}) => element.name);
  const absent = wanted?.of.find(column => !names.includes(column));
  if (absent !== undefined)
    throw new CliError(`There is no column "${absent}" in ${file}: its columns are ${listText(names)}`);
  return columns
    .filter(({element: {name}}) => !wanted || wanted.of.includes(name) || wanted.also.includes(name))
    .map(node => {
      const made = columnOf(node, durations);
      if (!(made instanceof NoText)) return made;
      throw new CliError(
        `${file}: column "${node.element.name}" ${made.message}, or choose other columns by --column and --keep`,
      );
    });
}

function columnOf(node: SchemaTree, durations: ReadonlySet<string>): Column | NoText {
  const {name} = node.element;
  if (durations.has(name))
    return new NoText('has the type duration, whose unit would be lost; write it as text or as a number');
  try {
    return {name, make: columnMaker(node)};
  } catch (error) {
    if (error instanceof NoText) return error;
    throw error;
  }
}

/** Makes its cells when they are read: a row beside the range is never refused. */
class ParquetRow {
  readonly at: number;
  readonly columns: readonly string[];
  readonly unreadable: ReadonlySet<string>;
  readonly #file: string;
  readonly #made: Column[];
  readonly #values: unknown[];

  constructor(file: string, at: number, {all, unreadable}: Names, made: Column[], values: unknown[]) {
    this.#file = file;
    this.at = at;
    this.columns = all;
    this.unreadable = unreadable;
    this.#made = made;
    this.#values = values;
  }

  get cells(): Cells {
    const cells = new Map<string, Cell>();
    for (const [index, {name, make}] of this.#made.entries())
      try {
        cells.set(name, make(this.#values[index]));
      } catch (error) {
        if (!(error instanceof NoText)) throw error;
        throw rowError({name: this.#file, unit: 'row'}, this, `column "${name}" ${error.message}`);
      }
    return cells;
  }
}

/** Local Parquet file. */
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
