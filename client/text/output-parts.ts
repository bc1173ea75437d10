/** Output in parts, as agents store it: `000001.txt`, `000002.txt` and so on. */

import {StringDecoder} from 'node:string_decoder';
import type {Objects} from '../../shared/ports/ports.ts';

/** Agents store parts of a few megabytes at most. */
const MAX_PART_BYTES = 67_108_864;

/** Lines of a text that comes in parts. A part may end within a line, and within a character. */
export class Lines {
  readonly #decoder = new StringDecoder('utf8');
  readonly #write: (line: string) => void;
  #rest = '';

  constructor(write: (line: string) => void) {
    this.#write = write;
  }

  add(bytes: Uint8Array): void {
    this.#take(this.#decoder.write(Buffer.from(bytes)));
  }

  /** Writes the last line, which may lack its end. */
  end(): void {
    this.#take(this.#decoder.end());
    if (this.#rest !== '') this.#write(this.#rest);
    this.#rest = '';
  }

  #take(text: string): void {
    const lines = (this.#rest + text).split(/\r?\n/);
    this.#rest = lines.pop() ?? '';
    // A progress bar returns to the start of its line: only its last state is shown.
    for (const line of lines) this.#write((line.split('\r').at(-1) ?? '').replaceAll('\t', '    '));
  }
}

export type Parts = ReturnType<typeof partsIn>;

/** Reads the parts of a folder in their order, each once. */
export function partsIn(objects: Objects, folder: string, write: (line: string) => void) {
  const lines = new Lines(write);
  let last = '';
  const read = async () => {
    const found = await objects.list(folder, last === '' ? {} : {start: last});
    for (const {name} of found.filter(({name}) => name > last && name.endsWith('.txt'))) {
      const bytes = await objects.read(name, {max_bytes: MAX_PART_BYTES});
      if (bytes) lines.add(bytes);
      last = name;
    }
  };
  const end = async () => {
    await read();
    lines.end();
  };
  return {read, end};
}

/** Parts that are read: the newest. */
const MOST_PARTS = 2;

/** The last lines of the newest parts in a folder. */
export async function outputTail(objects: Objects, folder: string, most: number): Promise<string[]> {
  const parts = (await objects.list(folder)).filter(({name}) => name.endsWith('.txt'));
  const lines: string[] = [];
  const text = new Lines(line => void lines.push(line));
  for (const {name} of parts.slice(-MOST_PARTS)) {
    const bytes = await objects.read(name, {max_bytes: MAX_PART_BYTES}).catch(() => undefined);
    if (bytes) text.add(bytes);
  }
  text.end();
  return lines.slice(-most);
}
