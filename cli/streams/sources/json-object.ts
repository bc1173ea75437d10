/** Rows of a JSON file that is one object: a record, columns, or a key with the list of rows. */
import {CliError} from '../../terminal/errors.ts';
import {listText} from '../../terminal/format.ts';
import {isListOf, isRecord} from '../known-fields.ts';
import {elementsOf, JsonError, jsonKind, membersOf, onOneLine} from './json-text.ts';
import {type Cell, Json, type Row} from './row.ts';

type Members = ReadonlyMap<string, string>;

/** `field`: the key of the rows. Throws `CliError` for an object of unclear meaning. */
export function rowsOfObject(file: string, text: string, field: string | undefined): Row[] {
  try {
    const members = membersOf(text);
    return field === undefined ? rowsOf(file, members) : rowsOfField(file, members, field);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw new CliError(
      `${file} is not JSON that a run can read: ${error.message}; correct it, or name another --format`,
      {cause: error},
    );
  }
}

function rowsOfField(file: string, members: Members, field: string): Row[] {
  const value = members.get(field);
  if (value === undefined)
    throw new CliError(
      `There is no key "${field}" in ${file}: its keys are ${listText([...members.keys()])}`,
    );
  const kind = jsonKind(value);
  if (kind === 'object') {
    const members = membersOf(value);
    const [list] = listsOfObjects(members);
    // --field names a key of the file alone.
    if (list !== undefined && !isRecord(members))
      throw new CliError(
        `${file} has an object with the list "${list}" as "${field}", and --field names a list of objects: write the list into a file of its own`,
      );
    return rowsOf(`${file}, key "${field}",`, members);
  }
  if (kind !== 'list')
    throw new CliError(`${file} has a ${kind} as "${field}", and --field names a list of objects`);
  return elementsOf(value).map((source, index) => ({at: index + 1, line: Buffer.from(onOneLine(source))}));
}

function rowsOf(file: string, members: Members): Row[] {
  if (isRecord(members)) return [rowOf(1, members)];
  const kinds = [...members.values()].map(jsonKind);
  if (kinds.length > 0 && kinds.every(kind => kind === 'list')) return rowsOfLists(file, members);
  if (kinds.length > 0 && kinds.every(kind => kind === 'object')) return rowsOfIndexes(file, members);
  const lists = listsOfObjects(members);
  if (lists.length > 0) throw unclear(file, lists);
  return [rowOf(1, members)];
}

/** `{column: [value, ...]}`. */
function rowsOfLists(file: string, members: Members): Row[] {
  const lists = listsOfObjects(members);
  if (lists.length === members.size) throw unclear(file, lists);
  if ([...members.keys()].sort().join() === 'columns,data,index')
    throw new CliError(`${file} has columns, index and data apart: write it again with ${AS_RECORDS}`);
  const columns = [...members].map(([name, value]) => [name, elementsOf(value)] as const);
  const lengths = new Set(columns.map(([, values]) => values.length));
  if (lengths.size > 1 && lists.length > 0) throw unclear(file, lists);
  if (lengths.size > 1)
    throw new CliError(
      `${file} is an object of lists with different lengths (${[...lengths].join(', ')}): rows need lists of one length, or an array of objects`,
    );
  return rowsOfColumns(columns);
}

/** `{column: {index: value}}`, as pandas writes a table. */
function rowsOfIndexes(file: string, members: Members): Row[] {
  const columns = [...members].map(([name, value]) => [name, membersOf(value)] as const);
  const indexes = columns.map(([, values]) => [...values.keys()].join());
  const isIndexed = columns.every(([, values]) => [...values.keys()].every(isIndex));
  if (!isIndexed || new Set(indexes).size > 1 || [...members.keys()].every(isIndex))
    throw new CliError(
      `${file} is an object of objects, which may be rows, columns or one record: write it again as an array of objects, or with ${AS_RECORDS}`,
    );
  return rowsOfColumns(columns.map(([name, values]) => [name, [...values.values()]] as const));
}

const AS_RECORDS = "orient='records' of pandas";

function isIndex(key: string): boolean {
  return /^\d{1,15}$/.test(key);
}

/** Keys of the lists that may be the rows. */
function listsOfObjects(members: Members): string[] {
  const isObject = (element: string) => jsonKind(element) === 'object';
  return [...members].flatMap(([name, value]) => (isListOf(value, isObject) ? name : []));
}

function unclear(file: string, lists: string[]): CliError {
  return new CliError(
    `${file} is one object, and its rows may be the list of objects in ${listText(lists)}: name the list with --field ${lists[0]}`,
  );
}

function rowsOfColumns(columns: readonly (readonly [string, string[]])[]): Row[] {
  return Array.from({length: columns[0]?.[1].length ?? 0}, (_, index) =>
    rowOf(
      index + 1,
      columns.map(([name, values]) => [name, values[index] as string] as const),
    ),
  );
}

function rowOf(at: number, members: Iterable<readonly [string, string]>): Row {
  const cells = new Map<string, Cell>();
  for (const [name, value] of members) cells.set(name, new Json(onOneLine(value)));
  return {at, cells};
}
