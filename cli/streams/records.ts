/** Rows as records of a stream: unchanged, one column, a template, or an ARC task. */
import {CliError} from '../terminal/errors.ts';
import {arcTask} from './arc-task.ts';
import {cellOf, jsonOf, kindOf, type Row, type RowSource, recordOf, rowError} from './sources/row.ts';

export type RecordOptions = {
  column?: string | undefined;
  template?: string | undefined;
  as?: 'arc' | undefined;
};

/** Makes the line of a record. `index`: the number of the row over all sources, from 0. */
export type Convert = (source: RowSource, row: Row, index: number) => Buffer;

/** Fields that a run reads without `record` in its spec. */
const KNOWN_FIELDS = ['text', 'prompt', 'messages', 'tokens'];

/** Columns that a conversion reads; undefined for all. */
export function columnsRead({column, template}: RecordOptions): string[] | undefined {
  if (template !== undefined) return [...new Set(fieldsOf(template))];
  return column === undefined ? undefined : [column];
}

export function converter({column, template, as}: RecordOptions): Convert {
  if (template !== undefined) return filled(parseTemplate(template));
  if (column === undefined) return unchanged;
  return (source, row, index) => {
    const value = cellOf(source, row, recordOf(source, row), column);
    const result = as === 'arc' ? arcTask(value, index) : recordFrom(value);
    if (typeof result === 'string') throw rowError(source, row, `column "${column}": ${result}`);
    return lineOf(source, row, result);
  };
}

/** True for a record that a run reads without `record` in its spec. */
export function isReadable(record: Record<string, unknown>): boolean {
  return KNOWN_FIELDS.some(field => field in record) || ('train' in record && 'test' in record);
}

/** JSON lines keep their bytes. */
const unchanged: Convert = (source, row) => {
  const record = recordOf(source, row);
  return 'line' in row ? row.line : lineOf(source, row, record);
};

function lineOf(source: RowSource, row: Row, record: object): Buffer {
  try {
    return Buffer.from(jsonOf(record));
  } catch (error) {
    throw rowError(source, row, (error as Error).message);
  }
}

/** The record of a value, or the problem of the value. */
function recordFrom(value: unknown): object | string {
  if (typeof value === 'string') return {text: value};
  if (value instanceof Uint8Array) return {text: value};
  if (Array.isArray(value) && value.length > 0) {
    if (value.every(isMessage)) return {messages: value};
    if (value.every(item => Number.isInteger(item) || typeof item === 'bigint')) return {tokens: value};
    return 'it is a list, but neither of messages with role and content nor of token ids; give --as arc for ARC examples';
  }
  if (value !== null && typeof value === 'object' && !Array.isArray(value))
    return isReadable(value as Record<string, unknown>)
      ? value
      : `it is an object without ${KNOWN_FIELDS.join(', ')}, or train and test`;
  return `it is ${Array.isArray(value) ? 'an empty list' : kindOf(value)}, and a record needs text, messages or token ids`;
}

function isMessage(item: unknown): boolean {
  return item !== null && typeof item === 'object' && 'role' in item && 'content' in item;
}

type Part = {text: string} | {column: string};

/** Parts of a template: `{column}` stands for the value, `{{` and `}}` for the brackets. Throws `CliError`. */
export function parseTemplate(template: string): Part[] {
  const parts: Part[] = [];
  const PATTERN = /\{\{|\}\}|\{([^{}]*)\}|[{}]/g;
  let from = 0;
  for (const match of template.matchAll(PATTERN)) {
    if (match.index > from) parts.push({text: template.slice(from, match.index)});
    from = match.index + match[0].length;
    if (match[0] === '{{' || match[0] === '}}') parts.push({text: match[0].slice(1)});
    else if (match[1]) parts.push({column: match[1]});
    else
      throw new CliError(
        `--template has a "${match[0]}" at character ${match.index + 1} that names no column: write {column}, and {{ or }} for a bracket`,
      );
  }
  if (from < template.length) parts.push({text: template.slice(from)});
  if (!parts.some(part => 'column' in part))
    throw new CliError('There is no column in --template: write for example "Q: {question}\\nA: {answer}"');
  return parts;
}

function fieldsOf(template: string): string[] {
  return parseTemplate(template).flatMap(part => ('column' in part ? [part.column] : []));
}

function filled(parts: Part[]): Convert {
  return (source, row) => {
    const record = recordOf(source, row);
    const text = parts.map(part => {
      if ('text' in part) return part.text;
      const value = cellOf(source, row, record, part.column);
      if (value === null || value === undefined)
        throw rowError(source, row, `column "${part.column}" is null, and --template needs a value`);
      if (typeof value === 'number' && !Number.isFinite(value))
        throw rowError(source, row, `column "${part.column}" is ${value}, and --template needs a value`);
      if (value instanceof Date) return value.toISOString();
      return typeof value === 'string' ? value : textOf(source, row, value);
    });
    return lineOf(source, row, {text: text.join('')});
  };
}

function textOf(source: RowSource, row: Row, value: unknown): string {
  try {
    const json = jsonOf(value);
    return value instanceof Uint8Array ? JSON.parse(json) : json;
  } catch (error) {
    throw rowError(source, row, (error as Error).message);
  }
}
