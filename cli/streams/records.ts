/** Rows as records of a stream: unchanged, one column, a template, or an ARC task. Values keep their source text. */
import {CliError} from '../../client/text/errors.ts';
import {listText} from '../../client/text/format.ts';
import {parsedText} from '../../shared/contracts/printable.ts';
import {arcTask} from './arc-task.ts';
import {
  elementsOf,
  JsonError,
  jsonKind,
  jsonValue,
  loneSurrogate,
  membersOf,
  onOneLine,
} from './sources/json-text.ts';
import {
  ABSENT,
  BESIDE_MESSAGES,
  CHATS,
  isMessages,
  isShareGpt,
  isTokens,
  KNOWN_FIELDS,
  knownFieldsOf,
  SYSTEM,
  shareGptProblem,
  TASK_FIELDS,
} from './sources/known-fields.ts';
import {
  type Cell,
  type Cells,
  type Columns,
  cellOf,
  cellsOf,
  Json,
  jsonOf,
  kindOf,
  objectOf,
  type Row,
  type RowSource,
  requireObject,
  rowError,
  textOf,
} from './sources/row.ts';

export type RecordOptions = {
  column?: string | undefined;
  template?: string | undefined;
  as?: 'arc' | undefined;
  /** Columns that come along. */
  keep?: string[] | undefined;
};

/** Makes the line of a record. `index`: the number of the row over all sources, from 0. */
export type Convert = (source: RowSource, row: Row, index: number) => Buffer;

/** Columns that a conversion reads; undefined for all. */
export function columnsRead({column, template, keep = []}: RecordOptions): Columns | undefined {
  if (template !== undefined) return {of: [...new Set([...fieldsOf(template), ...keep])], also: []};
  return column === undefined
    ? undefined
    : {of: [...new Set([column, ...keep])], also: [...BESIDE_MESSAGES, SYSTEM]};
}

/** Throws `CliError` for a record that a run would reject: its text has a lone surrogate, or its chat has an unknown `from`. */
export function requireReadable(source: RowSource, row: Row, line: Buffer): void {
  if (!SUSPECT.some(text => line.includes(text))) return;
  const record = membersOf(line.toString('utf8'));
  const [taken = ''] = knownFieldsOf(record);
  const isChat = CHATS.includes(taken);
  const problem = isChat ? shareGptProblem(record.get(taken) ?? '', record.get(SYSTEM)) : undefined;
  if (problem !== undefined)
    throw rowError(source, row, `${taken}${problem}: correct it, or give --no-check`);
  for (const name of isChat ? [taken, ...BESIDE_MESSAGES, SYSTEM] : [taken]) {
    const lone = loneSurrogate(record.get(name) ?? '');
    if (lone !== undefined)
      throw rowError(
        source,
        row,
        `${name} has a lone surrogate, ${lone}, which is not a character, and a run would reject the record: correct the text, or give --no-check`,
      );
  }
}

/** Texts of lines that `requireReadable` reads: how the escape of a surrogate begins, and a key of ShareGPT. */
const SUSPECT = ['\\ud', '\\uD', '"from"'];

/** Throws `CliError` for options that exclude each other. */
export function converter(options: RecordOptions, left_out = new LeftOut(options)): Convert {
  const {column, template, as, keep = []} = options;
  const keptColumns = [...new Set(keep)];
  if (template !== undefined) return filled(parseTemplate(template), keptColumns, left_out);
  if (column !== undefined) return ofColumn(column, as, keptColumns, left_out);
  if (keep.length > 0)
    throw new CliError(
      '--keep is for --column and --template, and without them every column stays: leave it out',
    );
  return unchanged;
}

/** JSON lines keep their bytes, unless a chat or what changes its text is JSON in a text, which no run reads. */
const unchanged: Convert = (source, row) => {
  requireObject(source, row);
  if ('line' in row && !AS_JSON_TEXT.test(row.line.toString('latin1'))) return row.line;
  const cells = cellsOf(source, row);
  const [taken = ''] = knownFieldsOf(cells);
  const chat = CHATS.includes(taken) ? chatOf(parsed(cells.get(taken) ?? ''), cells, taken) : undefined;
  const isEmpty = (name: string, cell: Cell) => BESIDE_MESSAGES.includes(name) && jsonOf(cell) === '""';
  const made = chat ? new Map([...[...cells].filter(cell => !isEmpty(...cell)), ...chat]) : cells;
  const isSame = [...cells].every(([name, cell]) => made.get(name) === cell);
  return isSame && 'line' in row ? row.line : Buffer.from(objectOf(made));
};

const AS_JSON_TEXT = /"(messages|conversations|tools|chat_template_kwargs)"\s*:\s*"/;

function ofColumn(column: string, as: RecordOptions['as'], keep: string[], left_out: LeftOut): Convert {
  return (source, row, index) => {
    const cells = cellsOf(source, row);
    const cell = cellOf(source, row, cells, column);
    const made = as === 'arc' ? taskOf(cell, index) : recordOf(cell, cells);
    if (typeof made === 'string') throw rowError(source, row, `column "${column}": ${made}`);
    left_out.add(row, made, cells);
    return lineOf(source, row, made, cells, keep);
  };
}

type Record = Map<string, Cell>;

/** The record of a value, or the problem of the value. */
function recordOf(cell: Cell, cells: Cells): Record | string {
  const chat = chatOf(parsed(cell), cells);
  if (chat) return chat;
  if (typeof cell === 'string') return new Map([['text', cell]]);
  const {source} = cell;
  switch (jsonKind(source)) {
    case 'string':
      return new Map([['text', cell]]);
    case 'list':
      if (isTokens(source)) return new Map([['tokens', cell]]);
      return elementsOf(source).length === 0
        ? 'it is an empty list, and a record needs text, messages or token ids'
        : 'it is a list, but neither of messages, with role and content or with from and value, nor of token ids: rename the keys of its messages, or give --as arc for ARC examples';
    case 'object': {
      const members = membersOf(source);
      if (knownFieldsOf(members).length > 0)
        return new Map([...members].map(([name, value]) => [name, new Json(value)]));
      return `it is an object without ${KNOWN_FIELDS.join(', ')}, or ${TASK_FIELDS.join(' and ')}: ${AS_TEXT}`;
    }
    default:
      return `it is ${kindOf(cell)}, and a record needs text, messages or token ids: ${AS_TEXT}`;
  }
}

const AS_TEXT = 'name another --column, or write the value as text with --template';

/** The record of a chat, with the values beside it that change its text; undefined for another value. */
function chatOf(chat: Cell, cells: Cells, name?: string): Record | undefined {
  if (typeof chat === 'string') return undefined;
  const {source} = chat;
  const isTurns = isShareGpt(source);
  if (!isTurns && !isMessages(source)) return undefined;
  const record: Record = new Map([[name ?? (isTurns ? 'conversations' : 'messages'), chat]]);
  for (const beside of isTurns ? [...BESIDE_MESSAGES, SYSTEM] : BESIDE_MESSAGES) {
    const cell = cells.get(beside);
    if (cell !== undefined && !ABSENT.includes(jsonOf(cell)))
      record.set(beside, beside === SYSTEM ? cell : parsed(cell));
  }
  return record;
}

/** Data sets store chats and tools also as the text of their JSON. */
function parsed(cell: Cell): Cell {
  if (typeof cell !== 'string' && !cell.source.startsWith('"')) return cell;
  const text = textOf(cell);
  if (!/^\s*[[{]/.test(text)) return cell;
  try {
    return new Json(onOneLine(jsonValue(text)));
  } catch (error) {
    if (error instanceof JsonError) return cell;
    throw error;
  }
}

function taskOf(cell: Cell, index: number): Record | string {
  const isJson = typeof cell !== 'string' && ['list', 'object'].includes(jsonKind(cell.source));
  if (!isJson) return `it is ${kindOf(cell)}, not a list of examples`;
  // Grids have digits alone, and the parser of JavaScript keeps these. NaN is no JSON for it.
  const task = arcTask(parsedText(cell.source), index);
  if (typeof task === 'string') return task;
  return new Map(Object.entries(task).map(([name, value]) => [name, new Json(JSON.stringify(value))]));
}

function lineOf(source: RowSource, row: Row, record: Record, cells: Cells, keep: readonly string[]): Buffer {
  for (const name of keep) {
    const cell = cellOf(source, row, cells, name);
    if (isIn(record, name, cell)) continue;
    if (replaces(record, name))
      throw rowError(
        source,
        row,
        `--keep ${name} would replace a field of the record, which has ${[...record.keys()].join(', ')}: rename the column`,
      );
    record.set(name, cell);
  }
  return Buffer.from(objectOf(record));
}

/** True where the record has the same value under this name, such as tools that stay beside messages by themselves. */
function isIn(record: Record, name: string, cell: Cell): boolean {
  const own = record.get(name);
  return own !== undefined && [cell, parsed(cell)].some(each => jsonOf(each) === jsonOf(own));
}

/** True for a name that the record has, or that a run takes before the fields of the record. */
function replaces(record: Record, name: string): boolean {
  if (record.has(name)) return true;
  if (![...KNOWN_FIELDS, ...TASK_FIELDS].includes(name)) return false;
  const [field] = knownFieldsOf(record);
  return knownFieldsOf({has: each => each === name || record.has(each)})[0] !== field;
}

/** Columns that records lack, of all rows. */
export class LeftOut {
  readonly #read: Columns | undefined;
  readonly #names = new Set<string>();

  constructor(options: RecordOptions) {
    this.#read = columnsRead(options);
  }

  get names(): string[] {
    return [...this.#names];
  }

  add({columns}: Row, record: Record, cells: Cells): void {
    for (const name of columns ?? cells.keys()) {
      if (this.#read?.of.includes(name)) continue;
      const cell = this.#read?.also.includes(name) ? cells.get(name) : undefined;
      if (cell === undefined || (!record.has(name) && !ABSENT.includes(jsonOf(cell)))) this.#names.add(name);
    }
  }

  text(): string | undefined {
    if (this.#names.size === 0) return undefined;
    return `Left out: ${listText(this.names, 10)}. --keep copies columns`;
  }
}

type Part = {text: string} | {column: string};

/** Parts of a template: `{column}` stands for the value, `{{` and `}}` for the brackets. Throws `CliError`. */
function parseTemplate(template: string): Part[] {
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
    throw new CliError('--template names no column: write for example "Q: {question}\\nA: {answer}"');
  return parts;
}

function fieldsOf(template: string): string[] {
  return parseTemplate(template).flatMap(part => ('column' in part ? [part.column] : []));
}

function filled(parts: Part[], keep: string[], left_out: LeftOut): Convert {
  return (source, row) => {
    const cells = cellsOf(source, row);
    const text = parts.map(part => {
      if ('text' in part) return part.text;
      const cell = cellOf(source, row, cells, part.column);
      if (typeof cell !== 'string' && NO_VALUES.includes(cell.source))
        throw rowError(
          source,
          row,
          `column "${part.column}" is ${cell.source}, and --template needs a value`,
        );
      return textOf(cell);
    });
    const made = new Map([['text', text.join('')]]);
    left_out.add(row, made, cells);
    return lineOf(source, row, made, cells, keep);
  };
}

const NO_VALUES = ['null', 'NaN', 'Infinity', '-Infinity'];
