/** JSON files: an array of objects, one object, or JSON lines under the name `.json`. */

import {CliError} from '../../../client/text/errors.ts';
import {bytesOf, FileSource, headOf, tooLong} from './file-source.ts';
import {arrayElements, BrokenArray, LongElement} from './json-array.ts';
import {rowsOfObject} from './json-object.ts';
import {JsonError, jsonKind, jsonValue} from './json-text.ts';
import {MOST_ROW_MIB} from './limits.ts';
import {JsonLines} from './line-source.ts';
import type {Row, Watch} from './row.ts';

export class JsonFile extends FileSource {
  readonly unit = 'row';
  readonly #field: string | undefined;

  /** `field`: the key of the list of rows, in a file of one object. */
  constructor(name: string, field?: string, most_row_bytes?: number) {
    super(name, most_row_bytes);
    this.#field = field;
  }

  async *rows(watch: Watch): AsyncGenerator<Row[]> {
    const kind = await kindOfFile(this.name);
    if (kind === 'object')
      yield rowsOfObject(this.name, await wholeText(this.name, this.most_row_bytes), this.#field);
    else if (this.#field !== undefined)
      throw new CliError(
        `${this.name} is ${kind === 'array' ? 'an array' : 'JSON lines'}, and --field is a key of one object: leave --field out`,
      );
    else if (kind === 'array') yield* this.#elements(watch);
    else yield* new JsonLines(this.name, this.most_row_bytes).rows(watch);
  }

  async *#elements(watch: Watch): AsyncGenerator<Row[]> {
    let at = 0;
    try {
      for await (const elements of arrayElements(bytesOf(this.name, watch), this.most_row_bytes))
        yield elements.map(line => ({at: ++at, line}));
    } catch (error) {
      if (error instanceof LongElement) throw tooLong(this.name, this.unit, at, this.most_row_bytes);
      if (!(error instanceof BrokenArray)) throw error;
      throw new CliError(`${this.name}, after row ${at}: ${error.message}`, {cause: error});
    }
  }
}

/** `object`: the whole file is one object. */
async function kindOfFile(file: string): Promise<'array' | 'lines' | 'object'> {
  const {text, isWhole} = await headOf(file);
  const head = text.trimStart();
  if (head.startsWith('[')) return 'array';
  if (head === '' && isWhole) return 'lines';
  if (!head.startsWith('{'))
    throw new CliError(
      `${file} is not JSON rows: it starts with neither [ nor {; correct it, or name its --format`,
    );
  const end = head.indexOf('\n');
  const [first, rest] = end < 0 ? [head, ''] : [head.slice(0, end), head.slice(end)];
  if (rest.trim() !== '' && isObject(first)) return 'lines';
  return isWhole || end < 0 || !isObject(first) ? 'object' : 'lines';
}

function isObject(text: string): boolean {
  try {
    return jsonKind(jsonValue(text)) === 'object';
  } catch (error) {
    if (error instanceof JsonError) return false;
    throw error;
  }
}

async function wholeText(file: string, most_bytes: number): Promise<string> {
  const {text, isWhole} = await headOf(file, most_bytes + 1);
  if (isWhole) return text;
  throw new CliError(
    `${file} is one object of more than ${most_bytes >> 20} MiB, which needs memory for all of it: write it as JSON lines or as an array of objects, or raise --max-row-mib (up to ${MOST_ROW_MIB})`,
  );
}
