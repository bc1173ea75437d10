/** JSON files: an array of objects, an object of columns, or JSON lines under the name `.json`. */
import {stat} from 'node:fs/promises';
import {CliError} from '../../terminal/errors.ts';
import {bytesText} from '../../terminal/format.ts';
import {bytesOf, FileSource} from './file-source.ts';
import {arrayElements, BrokenArray} from './json-array.ts';
import {JsonLines} from './line-source.ts';
import type {Row, Watch} from './row.ts';

/** An object of columns is read as a whole. */
const MOST_OBJECT_BYTES = 256 << 20;
const HEAD_BYTES = 1 << 20;

export class JsonFile extends FileSource {
  readonly unit = 'row';

  async *rows(watch: Watch): AsyncGenerator<Row[]> {
    const kind = await kindOfFile(this.name);
    if (kind === 'array') yield* this.#elements(watch);
    else if (kind === 'lines') yield* new JsonLines(this.name).rows(watch);
    else yield await this.#columns();
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

  async #columns(): Promise<Row[]> {
    const value = await wholeObject(this.name);
    const columns = Object.entries(value);
    const lengths = new Set(columns.map(([, cells]) => (Array.isArray(cells) ? cells.length : -1)));
    if (lengths.has(-1)) return [{at: 1, record: value}];
    if (lengths.size > 1)
      throw new CliError(
        `${this.name} is an object of lists with different lengths (${[...lengths].join(', ')}): rows need lists of one length, or an array of objects`,
      );
    return Array.from({length: [...lengths][0] ?? 0}, (_, index) => ({
      at: index + 1,
      record: Object.fromEntries(columns.map(([name, cells]) => [name, (cells as unknown[])[index]])),
    }));
  }
}

/** `object`: the whole file is one object. */
async function kindOfFile(file: string): Promise<'array' | 'lines' | 'object'> {
  const {text, isWhole} = await headOf(file);
  const head = text.trimStart();
  if (head.startsWith('[')) return 'array';
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
    return typeof JSON.parse(text) === 'object';
  } catch {
    return false;
  }
}

/** The text of a file, or at least the first megabyte. */
async function headOf(file: string, most = HEAD_BYTES): Promise<{text: string; isWhole: boolean}> {
  const watch: Watch = {stop: new AbortController().signal, moved: () => {}};
  const parts: Buffer[] = [];
  let length = 0;
  for await (const chunk of bytesOf(file, watch)) {
    parts.push(chunk);
    length += chunk.length;
    if (length >= most) break;
  }
  return {text: Buffer.concat(parts).toString('utf8'), isWhole: length < most};
}

async function wholeObject(file: string): Promise<Record<string, unknown>> {
  const {size} = await stat(file);
  if (size > MOST_OBJECT_BYTES)
    throw new CliError(
      `${file} is one object of ${bytesText(size)}, which needs memory for all of it: write it as JSON lines or as an array of objects`,
    );
  const {text} = await headOf(file, Number.POSITIVE_INFINITY);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new CliError(`${file} is not JSON: ${(error as Error).message}`, {cause: error});
  }
}
