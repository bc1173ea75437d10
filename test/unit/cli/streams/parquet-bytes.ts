/** Parquet files with wrong claims, which no writer makes. */

type Field = readonly [id: number, type: number, bytes: number[]];

const [I32, I64, BINARY, LIST, STRUCT] = [5, 6, 8, 9, 12];

function varint(value: number): number[] {
  const low = value % 128;
  return value < 128 ? [low] : [low + 128, ...varint(Math.floor(value / 128))];
}

const zigzag = (value: number) => varint(value < 0 ? -value * 2 - 1 : value * 2);
const i32 = (id: number, value: number): Field => [id, I32, zigzag(value)];
const i64 = (id: number, value: number): Field => [id, I64, zigzag(value)];
const binary = (id: number, text: string): Field => [
  id,
  BINARY,
  [...varint(text.length), ...Buffer.from(text)],
];
const list = (id: number, type: number, items: number[][]): Field => [
  id,
  LIST,
  [0xf0 | type, ...varint(items.length), ...items.flat()],
];

function struct(...fields: Field[]): number[] {
  let last = 0;
  const bytes = fields.flatMap(([id, type, value]) => {
    const delta = id - last;
    last = id;
    return [(delta << 4) | type, ...value];
  });
  return [...bytes, 0];
}

/** `children`: number of columns inside. A column without any has bytes as values. */
export type Element = {name: string; children?: number; isOptional?: boolean};
export type ParquetClaims = {
  schema: Element[];
  rows: number;
  /** Values of the page of the first column, its unpacked bytes, and its codec. */
  values: number;
  unpacked?: number;
  codec?: number;
  /** Bytes of the page. */
  page?: number[];
};

const BYTE_ARRAY = 6;

function elementOf({name, children, isOptional = false}: Element): number[] {
  const kind = children === undefined ? [i32(1, BYTE_ARRAY)] : [];
  const inside = children === undefined ? [] : [i32(5, children)];
  return struct(...kind, i32(3, isOptional ? 1 : 0), binary(4, name), ...inside);
}

/** A file of one row group, whose first leaf has one page. */
export function parquetFile({schema, rows, values, unpacked, codec = 0, page = []}: ParquetClaims): Buffer {
  const sizes = [i32(1, 0), i32(2, unpacked ?? page.length), i32(3, page.length)];
  const header = struct(...sizes, [5, STRUCT, struct(i32(1, values), i32(2, 0), i32(3, 3), i32(4, 3))]);
  const chunk = [...header, ...page];
  const path = schema.slice(1).map(({name}) => [...varint(name.length), ...Buffer.from(name)]);
  const meta = struct(
    i32(1, BYTE_ARRAY),
    list(2, I32, [zigzag(0)]),
    list(3, BINARY, path),
    i32(4, codec),
    i64(5, values),
    i64(6, chunk.length),
    i64(7, chunk.length),
    i64(9, 4),
  );
  const group = struct(list(1, STRUCT, [struct(i64(2, 4), [3, STRUCT, meta])]), i64(2, 1), i64(3, rows));
  const footer = struct(
    i32(1, 1),
    list(2, STRUCT, schema.map(elementOf)),
    i64(3, rows),
    list(4, STRUCT, [group]),
  );
  const end = Buffer.alloc(4);
  end.writeUInt32LE(footer.length);
  return Buffer.concat([
    Buffer.from('PAR1'),
    Buffer.from(chunk),
    Buffer.from(footer),
    end,
    Buffer.from('PAR1'),
  ]);
}
