/** Rows of a JSON file that is one object: a record, or a key with the list of rows. */
import {CliError} from '../../../client/text/errors.ts';
import {listText} from '../../../client/text/format.ts';
import {elementsOf, JsonError, jsonKind, membersOf, onOneLine} from './json-text.ts';
import {isListOf, isRecord} from './known-fields.ts';
import {Json, type Row} from './row.ts';

type Members = ReadonlyMap<string, string>;

/** `field`: the key of the rows. Throws `CliError` for an object of unclear meaning. */
export function rowsOfObject(file: string, text: string, field: string | undefined): Row[] {
  try {
    const members = membersOf(text);
    return field === undefined ? [rowOf(file, members)] : rowsOfField(file, members, field);
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
  if (kind !== 'list')
    throw new CliError(
      `${file} has no list as "${field}", but the kind ${kind}, and --field names a list of objects: write the rows into a file of their own`,
    );
  return elementsOf(value).map((source, index) => ({at: index + 1, line: Buffer.from(onOneLine(source))}));
}

function rowOf(file: string, members: Members): Row {
  if (!isRecord(members)) {
    const layout = layoutOf(members);
    if (layout !== undefined)
      throw new CliError(
        `${file} looks like a table of pandas in the layout '${layout}', which this command does not read: write it again with df.to_json('rows.jsonl', orient='records', lines=True)`,
      );
    const lists = listsOfObjects(members);
    if (lists.length > 0)
      throw new CliError(
        `${file} is one object, and its rows may be the list of objects in ${listText(lists)}: name the list with --field ${lists[0]}`,
      );
  }
  return {at: 1, cells: new Map([...members].map(([name, value]) => [name, new Json(onOneLine(value))]))};
}

/** Layout of `DataFrame.to_json` or `to_dict` that an object may have. */
function layoutOf(members: Members): string | undefined {
  const kinds = new Map([...members].map(([name, value]) => [name, jsonKind(value)]));
  if (kinds.get('schema') === 'object' && kinds.get('data') === 'list') return 'table';
  const are = (kind: string) => members.size > 0 && [...kinds.values()].every(each => each === kind);
  if (are('object')) return [...members.keys()].every(key => /^\d+$/.test(key)) ? 'index' : 'columns';
  if (!are('list')) return undefined;
  if (members.has('columns') && members.has('data')) return 'split';
  return listsOfObjects(members).length < members.size ? 'list' : undefined;
}

/** Keys of the lists that may be the rows. */
function listsOfObjects(members: Members): string[] {
  const isObject = (element: string) => jsonKind(element) === 'object';
  return [...members].flatMap(([name, value]) => (isListOf(value, isObject) ? name : []));
}
