/** Rows of a dataset, whatever their format. */
import {isUtf8} from 'node:buffer';
import {CliError} from '../../terminal/errors.ts';
import {listText} from '../../terminal/format.ts';

/** One row: JSON text of an object on one line, or the object. `at` counts the lines or rows of its source from 1. */
export type Row = {at: number} & ({line: Buffer} | {record: Record<string, unknown>});

/** Progress of a pass, and its end. */
export type Watch = {stop: AbortSignal; moved: (bytes: number) => void};

/** Identity of a source: the bytes that its rows come from. */
export type SourceIdentity = {source: string; bytes: number; sha256?: string; commit?: string};

export interface RowSource {
  /** Name for messages. */
  readonly name: string;
  /** Unit of `at` of a row. */
  readonly unit: 'line' | 'row';
  identity(watch: Watch): Promise<SourceIdentity>;
  /** Number of rows, or `most` where there are more. */
  count(watch: Watch, most: number): Promise<number>;
  /** All rows in order. `columns`: the columns that the caller reads; undefined for all. */
  rows(watch: Watch, columns: readonly string[] | undefined): AsyncIterable<Row[]>;
}

export function rowError({name, unit}: RowSource, {at}: Row, problem: string): CliError {
  return new CliError(`${name}, ${unit} ${at}: ${problem}`);
}

/** The object of a row. Throws `CliError` for text that is no JSON object. */
export function recordOf(source: RowSource, row: Row): Record<string, unknown> {
  if ('record' in row) return row.record;
  if (!isUtf8(row.line)) throw rowError(source, row, 'it is not UTF-8 text; convert the file to UTF-8');
  let value: unknown;
  try {
    value = parseExactly(row.line.toString('utf8'));
  } catch (error) {
    throw rowError(
      source,
      row,
      `it is not JSON (${(error as Error).message}); correct it, or name another --format`,
    );
  }
  if (value === null || typeof value !== 'object' || Array.isArray(value))
    throw rowError(source, row, `it is ${kindOf(value)}, and a row is a JSON object`);
  return value as Record<string, unknown>;
}

/** JSON with every digit of its integers: an integer that no `number` holds is a `bigint`. */
function parseExactly(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const exact = (_key: string, value: unknown, context?: {source?: string}): unknown =>
    typeof value === 'number' && /^-?\d+$/.test(context?.source ?? '') && !Number.isSafeInteger(value)
      ? BigInt(context?.source ?? 0)
      : value;
  return JSON.parse(text, exact as (key: string, value: unknown) => unknown);
}

/** The value of a column. Throws `CliError` that lists the columns of the row. */
export function cellOf(
  source: RowSource,
  row: Row,
  record: Record<string, unknown>,
  column: string,
): unknown {
  if (Object.hasOwn(record, column)) return record[column];
  throw rowError(
    source,
    row,
    `it has no column "${column}"; its columns are ${listText(Object.keys(record))}`,
  );
}

export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return 'null';
  if (Array.isArray(value)) return 'a list';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

/** JSON of a value on one line. 64-bit integers keep their digits, and bytes that are text become strings. */
export function jsonOf(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) => {
    if (typeof inner === 'bigint') return rawJson(inner);
    if (inner instanceof Uint8Array) return textOf(inner);
    return ArrayBuffer.isView(inner) ? Array.from(inner as unknown as ArrayLike<number>) : inner;
  });
}

/** Bytes as text. Throws for bytes that are no text, such as those of pictures. */
function textOf(bytes: Uint8Array): string {
  if (!isUtf8(bytes)) throw new TypeError('it holds bytes that are no text; choose other columns');
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
}

/** A number with all of its digits, which no `number` holds. */
function rawJson(value: bigint): unknown {
  const {rawJSON} = JSON as unknown as {rawJSON: (text: string) => unknown};
  return rawJSON(String(value));
}
