/** Elements of a JSON array, without the whole array in memory. */

const QUOTE = 34;
const BACKSLASH = 92;
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT, COMMA] = [91, 93, 123, 125, 44];

/** The text after the array, or before its end, is not what it must be. */
export class BrokenArray extends Error {}

/**
 * Yields the text of each element on one line. Only white space between tokens is removed: numbers keep their digits. The caller
 * parses the elements. Throws `BrokenArray` where brackets do not match.
 */
export async function* arrayElements(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer[]> {
  const splitter = new Splitter();
  for await (const chunk of chunks) {
    const elements = splitter.split(chunk);
    if (elements.length > 0) yield elements;
  }
  if (!splitter.isClosed) throw new BrokenArray('the array does not end: the file is cut off');
}

class Splitter {
  isClosed = false;
  #depth = 0;
  #inText = false;
  #escaped = false;
  #hasComma = false;
  #parts: Buffer[] = [];

  split(chunk: Buffer): Buffer[] {
    const found: Buffer[] = [];
    // Start of the bytes that belong to the element and are not yet in `parts`; -1 between elements and in white space.
    let start = this.#inText ? 0 : -1;
    const keep = (end: number) => {
      if (start >= 0 && end > start) this.#parts.push(Buffer.from(chunk.subarray(start, end)));
      start = -1;
    };
    for (let at = 0; at < chunk.length; at++) {
      const byte = chunk[at] as number;
      if (this.#inText) {
        if (this.#escaped) this.#escaped = false;
        else if (byte === BACKSLASH) this.#escaped = true;
        else if (byte === QUOTE) this.#inText = false;
        continue;
      }
      if (byte === 32 || byte === 10 || byte === 13 || byte === 9) {
        keep(at);
        continue;
      }
      if (this.isClosed) throw new BrokenArray('text follows the end of the array');
      if (this.#depth === 0) {
        if (byte !== OPEN_LIST) throw new BrokenArray('the file does not start with [');
        this.#depth = 1;
        continue;
      }
      if (this.#depth === 1 && (byte === COMMA || byte === CLOSE_LIST)) {
        keep(at);
        this.#end(found, byte);
        continue;
      }
      if (start < 0) start = at;
      if (byte === QUOTE) this.#inText = true;
      else if (byte === OPEN_LIST || byte === OPEN_OBJECT) this.#depth++;
      else if (byte === CLOSE_LIST || byte === CLOSE_OBJECT) this.#depth--;
      if (this.#depth === 0) throw new BrokenArray('a bracket closes that none opened');
    }
    keep(chunk.length);
    return found;
  }

  #end(found: Buffer[], byte: number): void {
    const element = Buffer.concat(this.#parts);
    this.#parts = [];
    const isMissing = element.length === 0 && (byte === COMMA || this.#hasComma);
    if (isMissing) throw new BrokenArray('an element is missing beside a comma');
    if (element.length > 0) found.push(element);
    this.#hasComma = byte === COMMA;
    if (byte === CLOSE_LIST) this.isClosed = true;
  }
}
