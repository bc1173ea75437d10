/** Pages of a column chunk of Parquet. The library allocates what their headers claim, so each header is read here before. */
import {isInflated, LIMITS} from '../limits.ts';

/** A file that claims more than its bytes can hold, or than memory can. The message follows the name of the file. */
export class Inflated extends Error {}

/** Bytes of the longest header: its statistics may hold two values. */
const MOST_HEADER_BYTES = 16 << 20;
const MOST_NESTED = 16;

/** Types of Thrift's compact protocol. */
const [STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, STRUCT] = [
  0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12,
];

/** Sizes of the pages of a chunk: the values of its data pages, and the bytes of all unpacked pages. */
export type ChunkSize = {values: number; unpacked_bytes: number};

/** Throws `Inflated` where a page claims more than its bytes can hold, and other errors for a damaged chunk. */
export function sizeOfChunk(chunk: Uint8Array): ChunkSize {
  const size = {values: 0, unpacked_bytes: 0};
  let at = 0;
  while (at < chunk.length - 1) {
    const reader = new Headers(chunk, at);
    const page = reader.page();
    if (page.packed < 0 || page.unpacked < 0 || page.values < 0)
      throw new Error('a page has a negative size');
    // A page may repeat one value, but its bytes bound how often.
    if (isInflated(page.values, page.packed) || isInflated(page.unpacked, page.packed))
      throw new Inflated(
        `claims ${page.values} values in ${page.unpacked} bytes of a page of ${page.packed} bytes, which is more than ${LIMITS.ratio} for each byte`,
      );
    size.unpacked_bytes += page.unpacked;
    if (page.isData) size.values += page.values;
    at = reader.at + page.packed;
  }
  return size;
}

type Page = {packed: number; unpacked: number; values: number; isData: boolean};

/** Reads the header of a page: numbers of the fields that say sizes. */
class Headers {
  readonly #bytes: Uint8Array;
  readonly #end: number;
  at: number;

  constructor(bytes: Uint8Array, at: number) {
    this.#bytes = bytes;
    this.at = at;
    this.#end = Math.min(bytes.length, at + MOST_HEADER_BYTES);
  }

  page(): Page {
    const page: Page = {packed: 0, unpacked: 0, values: 0, isData: false};
    this.#struct((field, type) => {
      if (field === 2 && type === I32) page.unpacked = this.#integer();
      else if (field === 3 && type === I32) page.packed = this.#integer();
      else if ((field === 5 || field === 7 || field === 8) && type === STRUCT) {
        page.isData ||= field !== 7;
        this.#struct((inner, kind) => {
          if (inner === 1 && kind === I32) page.values = Math.max(page.values, this.#integer());
          else this.#skip(kind, 0);
        });
      } else this.#skip(type, 0);
    });
    return page;
  }

  #struct(read: (field: number, type: number) => void): void {
    let field = 0;
    for (;;) {
      const byte = this.#byte();
      const type = byte & 15;
      if (type === STOP) return;
      field = byte >> 4 ? field + (byte >> 4) : this.#integer();
      read(field, type);
    }
  }

  #skip(type: number, depth: number): void {
    if (depth > MOST_NESTED) throw new Error('the header of a page is nested too deep');
    if (type === TRUE || type === FALSE) return;
    if (type === BYTE) this.#move(1);
    else if (type === I16 || type === I32 || type === I64) this.#varint();
    else if (type === DOUBLE) this.#move(8);
    else if (type === BINARY) this.#move(this.#varint());
    else if (type === LIST || type === SET) this.#skipList(depth);
    else if (type === STRUCT) this.#struct((_, inner) => this.#skip(inner, depth + 1));
    else throw new Error(`the header of a page has the unknown type ${type}`);
  }

  #skipList(depth: number): void {
    const byte = this.#byte();
    const type = byte & 15;
    const length = byte >> 4 === 15 ? this.#varint() : byte >> 4;
    for (let index = 0; index < length; index++)
      if (type === TRUE || type === FALSE) this.#move(1);
      else this.#skip(type, depth + 1);
  }

  /** A number in zigzag. */
  #integer(): number {
    const number = this.#varint();
    return number % 2 === 0 ? number / 2 : -(number + 1) / 2;
  }

  #varint(): number {
    let number = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = this.#byte();
      number += (byte & 127) * 2 ** shift;
      if (byte < 128) return number;
    }
    throw new Error('the header of a page has a number without an end');
  }

  #byte(): number {
    this.#move(1);
    return this.#bytes[this.at - 1] as number;
  }

  #move(bytes: number): void {
    this.at += bytes;
    if (!(this.at <= this.#end)) throw new Error('the header of a page is cut off');
  }
}
