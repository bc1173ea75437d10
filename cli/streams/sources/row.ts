/** Rows of a dataset, whatever their format. */
import {isUtf8} from 'node:buffer';
import {CliError} from '../../../client/text/errors.ts';
import {listText} from '../../../client/text/format.ts';
import {JsonError, jsonKind, jsonValue, membersOf} from './json-text.ts';

/** A value with its source text in JSON, such as `1.0` or `[1, 2]`. */
export class Json {
  readonly source: string;

  constructor(source: string) {
    this.source = source;
  }
}

/** Value of a row: a text, or JSON of any kind. */
export type Cell = string | Json;

/** Values of a row by their columns, in order. An object would reorder columns such as `10` and `2`. */
export type Cells = ReadonlyMap<string, Cell>;

/**
 * One row: JSON text of an object on one line, or the cells. `at` counts the lines or rows of its source from 1. `columns`: all columns of
 * a source of which `cells` has some.
 */
export type Row = {
  readonly at: number;
  readonly columns?: readonly string[];
} & ({readonly line: Buffer} | {readonly cells: Cells});

/** Progress of a pass, and its end. */
export type Watch = {stop: AbortSignal; moved: (bytes: number) => void};

export type SourceIdentity = {source: string; bytes: number; sha256?: string; commit?: string};

/** Columns that the caller reads. A source may lack those of `also`. */
export type Columns = {of: readonly string[]; also: readonly string[]};

export interface RowSource {
  readonly name: string;
  readonly unit: 'line' | 'row';
  identity(watch: Watch): Promise<SourceIdentity>;
  count(watch: Watch, most: number): Promise<number>;
  /** All rows in order. `columns` is undefined for all columns. */
  rows(watch: Watch, columns: Columns | undefined): AsyncIterable<Row[]>;
}

type Place = Pick<RowSource, 'name' | 'unit'>;

export function rowError({name, unit}: Place, {at}: Pick<Row, 'at'>, problem: string): CliError {
  return new CliError(`${name}, ${unit} ${at}: ${problem}`);
}

/** Throws `CliError` for a name that is there twice. `inside`: the column that the names lie in, with its point. */
export function requireUnique(file: string, names: readonly string[], inside = ''): void {
  const known = new Set<string>();
  const twice = names.find(name => known.size === known.add(name).size);
  if (twice !== undefined)
    throw new CliError(`${file} has the column "${inside}${twice}" twice: rename one of them`);
}

/** The cells of a row. Throws `CliError` for text that is not a JSON object. */
export function cellsOf(source: Place, row: Row): Cells {
  if ('cells' in row) return row.cells;
  const cells = new Map<string, Cell>();
  for (const [name, value] of read(source, row, membersOf)) cells.set(name, new Json(value));
  return cells;
}

/** Throws `CliError` for a row of text that is not a JSON object. */
export function requireObject(source: Place, row: Row): void {
  if ('line' in row) read(source, row, jsonValue);
}

function read<T>(source: Place, row: Row & {line: Buffer}, parse: (text: string) => T): T {
  if (!isUtf8(row.line)) throw rowError(source, row, 'it is not UTF-8 text; convert the file to UTF-8');
  const text = row.line.toString('utf8');
  try {
    const value = parse(text);
    const kind = jsonKind(text.trimStart());
    if (kind !== 'object') throw rowError(source, row, `it is ${article(kind)}, and a row is a JSON object`);
    return value;
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw rowError(
      source,
      row,
      `it is not JSON that a run can read: ${error.message}; correct it, or name another --format`,
    );
  }
}

/** The value of a column. Throws `CliError` that lists the columns of the row. */
export function cellOf(source: Place, row: Row, cells: Cells, column: string): Cell {
  const cell = cells.get(column);
  if (cell !== undefined) return cell;
  const known = listText([...cells.keys()]);
  throw rowError(source, row, `it has no column "${column}"; its columns are ${known}`);
}

export function jsonOf(cell: Cell): string {
  return typeof cell === 'string' ? JSON.stringify(cell) : cell.source;
}

/** Text of a cell as people write it: a string without its quotes, else the JSON. */
export function textOf(cell: Cell): string {
  if (typeof cell === 'string') return cell;
  return cell.source.startsWith('"') ? JSON.parse(cell.source) : cell.source;
}

/** Kind of a cell, for messages: `a list`. */
export function kindOf(cell: Cell): string {
  return article(typeof cell === 'string' ? 'string' : jsonKind(cell.source));
}

function article(kind: string): string {
  if (kind === 'null') return 'null';
  return kind === 'object' ? 'an object' : `a ${kind}`;
}

export function objectOf(cells: Iterable<readonly [string, Cell]>): string {
  let text = '';
  for (const [name, cell] of cells)
    text += `${text === '' ? '' : ','}${JSON.stringify(name)}:${jsonOf(cell)}`;
  return `{${text}}`;
}
