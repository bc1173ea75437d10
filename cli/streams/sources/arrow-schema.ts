/** The Arrow schema of a Parquet file, which has what Parquet's own schema lacks: a duration is a bare integer there. */

/** `Type.Duration` of Arrow's Schema.fbs. */
const DURATION = 18;

/** A table of a flatbuffer. Its offsets lead forward, so no table contains itself. Throws `RangeError` beyond the end. */
class Table {
  readonly #data: DataView;
  readonly at: number;

  constructor(data: DataView, at: number) {
    this.#data = data;
    this.at = at;
  }

  /** Place of a field, or undefined where the table lacks it. */
  #field(index: number): number | undefined {
    const vtable = this.at - this.#data.getInt32(this.at, true);
    const offset = 4 + 2 * index;
    if (offset >= this.#data.getUint16(vtable, true)) return undefined;
    const place = this.#data.getUint16(vtable + offset, true);
    return place === 0 ? undefined : this.at + place;
  }

  byte(index: number): number {
    const at = this.#field(index);
    return at === undefined ? 0 : this.#data.getUint8(at);
  }

  #target(index: number): number | undefined {
    const at = this.#field(index);
    return at === undefined ? undefined : at + this.#data.getUint32(at, true);
  }

  table(index: number): Table | undefined {
    const at = this.#target(index);
    return at === undefined ? undefined : new Table(this.#data, at);
  }

  text(index: number): string {
    const at = this.#target(index);
    if (at === undefined) return '';
    const {buffer, byteOffset} = this.#data;
    return Buffer.from(buffer, byteOffset + at + 4, this.#data.getUint32(at, true)).toString('utf8');
  }

  *tables(index: number): Generator<Table> {
    const at = this.#target(index);
    const count = at === undefined ? 0 : this.#data.getUint32(at, true);
    for (let number = 0, place = (at ?? 0) + 4; number < count; number++, place += 4)
      yield new Table(this.#data, place + this.#data.getUint32(place, true));
  }
}

/** Columns with a duration, also inside of a list or struct; none of a schema that cannot be read. `encoded`: the value of `ARROW:schema`. */
export function columnsOfDurations(encoded: string): Set<string> {
  try {
    return durationsOf(Buffer.from(encoded, 'base64'));
  } catch (error) {
    if (error instanceof RangeError) return new Set();
    throw error;
  }
}

function durationsOf(bytes: Buffer): Set<string> {
  const data = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  // A message begins with its size, since Arrow 0.15 behind a mark.
  const start = data.getUint32(0, true) === 0xffffffff ? 8 : 4;
  const schema = new Table(data, start + data.getUint32(start, true)).table(2);
  const known = new Map<number, boolean>();
  const hasDuration = (field: Table): boolean => {
    const before = known.get(field.at);
    if (before !== undefined) return before;
    const has = field.byte(2) === DURATION || [...field.tables(5)].some(hasDuration);
    known.set(field.at, has);
    return has;
  };
  return new Set([...(schema?.tables(1) ?? [])].filter(hasDuration).map(field => field.text(0)));
}
