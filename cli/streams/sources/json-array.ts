/** Elements of a JSON array, without the whole array in memory. */
import {onOneLine} from './json-text.ts';

const QUOTE = 34;
const BACKSLASH = 92;
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT, COMMA] = [91, 93, 123, 125, 44];

/** An element with more bytes than the limit. */
export class LongElement extends Error {}

/** The text after the array, or before its end, is not what it must be. */
export class BrokenArray extends Error {}

/**
 * Yields the text of each element on one line. The caller parses the elements. Throws `BrokenArray` where brackets do not match, and `LongElement`.
 */
export async function* arrayElements(
  chunks: AsyncIterable<Buffer>,
  most_bytes: number,
): AsyncGenerator<Buffer[]> {
  const splitter = new Splitter();
  for await (const chunk of chunks) {
    const elements = splitter.split(chunk);
    if (elements.length > 0) yield elements;
    if (splitter.pending_bytes > most_bytes) throw new LongElement();
  }
  if (!splitter.isClosed) throw new BrokenArray('the array does not end: the file is cut off');
}

class Splitter {
  isClosed = false;
  #depth = 0;
  #inText = false;
  #escaped = false;
  #hasComma = false;
  #hasNewline = false;
  #parts: Buffer[] = [];

  /** Bytes of the element that has no end yet. */
  get pending_bytes(): number {
    return this.#parts.reduce((sum, part) => sum + part.length, 0);
  }

  split(chunk: Buffer): Buffer[] {
    const found: Buffer[] = [];
    // Start of the bytes that belong to the element and are not yet in `parts`; -1 between elements.
    let start = this.#parts.length > 0 ? 0 : -1;
    for (let at = 0; at < chunk.length; at++) {
      const byte = chunk[at] as number;
      if (this.#inText) {
        if (this.#escaped) this.#escaped = false;
        else if (byte === BACKSLASH) this.#escaped = true;
        else if (byte === QUOTE) this.#inText = false;
        else if (byte === 10 || byte === 13) throw new BrokenArray('a text has a newline without its escape');
        continue;
      }
      if (byte === 32 || byte === 10 || byte === 13 || byte === 9) {
        if (start >= 0 && (byte === 10 || byte === 13)) this.#hasNewline = true;
        continue;
      }
      if (this.isClosed) throw new BrokenArray('text follows the end of the array');
      if (this.#depth === 0) {
        if (byte !== OPEN_LIST) throw new BrokenArray('the file does not start with [');
        this.#depth = 1;
        continue;
      }
      if (this.#depth === 1 && (byte === COMMA || byte === CLOSE_LIST)) {
        if (start >= 0) this.#parts.push(chunk.subarray(start, at));
        start = -1;
        this.#end(found, byte);
        continue;
      }
      if (start < 0) start = at;
      if (byte === QUOTE) this.#inText = true;
      else if (byte === OPEN_LIST || byte === OPEN_OBJECT) this.#depth++;
      else if (byte === CLOSE_LIST || byte === CLOSE_OBJECT) this.#depth--;
      if (this.#depth === 0) throw new BrokenArray('a bracket closes that none opened');
    }
    if (start >= 0) this.#parts.push(chunk.subarray(start));
    return found;
  }

  #end(found: Buffer[], byte: number): void {
    const raw = this.#parts.length === 1 ? (this.#parts[0] as Buffer) : Buffer.concat(this.#parts);
    // Every byte is a character of latin1, so the other bytes stay.
    const element = this.#hasNewline ? Buffer.from(onOneLine(raw.toString('latin1')), 'latin1') : raw;
    this.#parts = [];
    this.#hasNewline = false;
    const isMissing = element.length === 0 && (byte === COMMA || this.#hasComma);
    if (isMissing) throw new BrokenArray('an element is missing beside a comma');
    if (element.length > 0) found.push(element);
    this.#hasComma = byte === COMMA;
    if (byte === CLOSE_LIST) this.isClosed = true;
  }
}
