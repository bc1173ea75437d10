/** JSON files: an array of objects, one object, or JSON lines under the name `.json`. */
import {stat} from 'node:fs/promises';
import {CliError} from '../../terminal/errors.ts';
import {bytesText} from '../../terminal/format.ts';
import {bytesOf, FileSource, headOf} from './file-source.ts';
import {arrayElements, BrokenArray} from './json-array.ts';
import {rowsOfObject} from './json-object.ts';
import {JsonError, jsonKind, jsonValue} from './json-text.ts';
import {JsonLines} from './line-source.ts';
import type {Row, Watch} from './row.ts';

/** One object is read as a whole. */
const MOST_OBJECT_BYTES = 256 << 20;

export class JsonFile extends FileSource {
  readonly unit = 'row';
  readonly #field: string | undefined;

  /** `field`: the key of the list of rows, in a file of one object. */
  constructor(name: string, field?: string) {
    super(name);
    this.#field = field;
  }

  async *rows(watch: Watch): AsyncGenerator<Row[]> {
    const kind = await kindOfFile(this.name);
    if (kind === 'object') yield rowsOfObject(this.name, await wholeText(this.name), this.#field);
    else if (this.#field !== undefined)
      throw new CliError(
        `${this.name} is ${kind === 'array' ? 'an array' : 'JSON lines'}, and --field is a key of one object: leave --field out`,
      );
    else if (kind === 'array') yield* this.#elements(watch);
    else yield* new JsonLines(this.name).rows(watch);
  }

  async *#elements(watch: Watch): AsyncGenerator<Row[]> {
    let at = 0;
    try {
      for await (const elements of arrayElements(bytesOf(this.name, watch)))
        yield elements.map(line => ({at: ++at, line}));
    } catch (error) {
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

async function wholeText(file: string): Promise<string> {
  const {size} = await stat(file);
  if (size > MOST_OBJECT_BYTES)
    throw new CliError(
      `${file} is one object of ${bytesText(size)}, which needs memory for all of it: write it as JSON lines or as an array of objects`,
    );
  return (await headOf(file, Number.POSITIVE_INFINITY)).text;
}
