/**
 * Values of Parquet as cells. The library assembles lists and structs of physical values, and this file gives them the meaning of
 * their types: decimals, times and 64-bit integers keep every digit.
 */
import {isUtf8} from 'node:buffer';
import type {SchemaElement, SchemaTree} from 'hyparquet';
import {JsonError, jsonValue, onOneLine} from './json-text.ts';
import {type Cell, Json, jsonOf} from './row.ts';

/** A value, or a type, that has no faithful text. The message follows the name of the column. */
export class NoText extends Error {}

/** Makes the cell of a physical value. Throws `NoText`. */
type ToCell = (value: unknown) => Cell;

const NULL = new Json('null');

/** Parsers for the library, which leave values physical. */
export const PHYSICAL = {
  timestampFromNanoseconds: (nanoseconds: bigint) => nanoseconds,
  jsonFromBytes: (bytes: Uint8Array) => bytes,
  stringFromBytes: (bytes: Uint8Array) => bytes,
};

/** The schema without the types of leaves, so that the library returns physical values. Maps are lists of pairs. */
export function physicalSchema(schema: readonly SchemaElement[]): SchemaElement[] {
  return schema.map(({converted_type, logical_type, ...element}) => {
    const isList = element.num_children && (converted_type === 'LIST' || logical_type?.type === 'LIST');
    return isList ? {...element, converted_type: 'LIST'} : element;
  });
}

/** Makes the cells of a column. Throws `NoText` for a type without a text. */
function cellMaker(node: SchemaTree): ToCell {
  const one = oneMaker(node);
  return node.element.repetition_type === 'REPEATED' ? listOf(one) : one;
}

/** As `cellMaker`, for a column of rows. The library gives null for a null, and undefined where a damaged file has no more values. */
export function columnMaker(node: SchemaTree): ToCell {
  const make = cellMaker(node);
  if (node.children.length > 0 || node.element.repetition_type === 'REPEATED') return make;
  return value => {
    if (value === undefined) throw new NoText('has no value: the file is damaged');
    return make(value);
  };
}

/** As `cellMaker`, for one of the values of a repeated node. */
function oneMaker(node: SchemaTree): ToCell {
  const {element, children} = node;
  if (element.logical_type?.type === 'VARIANT')
    throw new NoText('has the type VARIANT, which this command cannot read: write it as JSON');
  if (children.length === 0) return orNull(leafMaker(element));
  const [child] = children as [SchemaTree];
  const isGroup = child.element.repetition_type === 'REPEATED' && children.length === 1;
  if (isGroup && isAnnotated(element, 'LIST')) return orNull(listMaker(node, child));
  if (isGroup && child.children.length === 2 && isAnnotated(element, 'MAP', 'MAP_KEY_VALUE'))
    return orNull(mapMaker(child));
  return orNull(structMaker(children));
}

function isAnnotated({converted_type, logical_type}: SchemaElement, ...types: string[]): boolean {
  return types.includes(converted_type ?? '') || types.includes(logical_type?.type ?? '');
}

function orNull(make: ToCell): ToCell {
  return value => (value === null || value === undefined ? NULL : make(value));
}

function listOf(make: ToCell): ToCell {
  return orNull(
    value => new Json(`[${Array.from(value as unknown[], each => jsonOf(make(each))).join(',')}]`),
  );
}

/** A list has a repeated group around its elements. Old files have repeated elements, also structs. */
function listMaker(list: SchemaTree, repeated: SchemaTree): ToCell {
  const [element] = repeated.children;
  if (element === undefined || repeated.children.length > 1) return listOf(oneMaker(repeated));
  const isStruct = ['array', `${list.element.name}_tuple`].includes(repeated.element.name);
  if (!isStruct) return listOf(cellMaker(element));
  // The library leaves out the struct of one field.
  const field = cellMaker(element);
  return listOf(value => new Json(`{${JSON.stringify(element.element.name)}:${jsonOf(field(value))}}`));
}

function structMaker(children: SchemaTree[]): ToCell {
  const fields = children.map(child => [child.element.name, cellMaker(child)] as const);
  return value => {
    const members = fields.map(
      ([name, make]) => `${JSON.stringify(name)}:${jsonOf(make((value as Record<string, unknown>)[name]))}`,
    );
    return new Json(`{${members.join(',')}}`);
  };
}

/** A map is an object, in the order of its keys. */
function mapMaker(pair: SchemaTree): ToCell {
  const [key, value] = pair.children as [SchemaTree, SchemaTree];
  const [keyCell, valueCell] = [cellMaker(key), cellMaker(value)];
  const [keyName, valueName] = [key.element.name, value.element.name];
  return value => {
    const pairs = (value as Record<string, Record<string, unknown>[]>)[pair.element.name] ?? [];
    const members = new Map<string, string>();
    for (const each of pairs) {
      const key = keyCell(each[keyName]);
      const name = typeof key === 'string' ? key : key.source;
      if (members.has(name))
        throw new NoText(`holds a map with the key "${name}" twice, and JSON has each key once`);
      members.set(name, jsonOf(valueCell(each[valueName])));
    }
    return new Json(`{${[...members].map(([name, json]) => `${JSON.stringify(name)}:${json}`).join(',')}}`);
  };
}

function leafMaker(element: SchemaElement): ToCell {
  const {type, converted_type: converted, logical_type: logical} = element;
  const named = logical?.type ?? converted;
  if (named === 'DECIMAL') {
    const scale = (logical?.type === 'DECIMAL' ? logical.scale : element.scale) ?? 0;
    return value => decimalText(unscaled(value), scale);
  }
  if (named === 'DATE') return value => instant(BigInt(value as number) * DAY_S).slice(0, 10);
  const time = timeOf(element);
  if (time) return value => timeText(BigInt(value as number | bigint), time);
  if (named === 'INTERVAL' || named === 'BSON')
    throw new NoText(`has the type ${named}, which this command cannot read: write it as text`);
  if (named === 'UINT_32' || (logical?.type === 'INTEGER' && logical.bitWidth === 32 && !logical.isSigned))
    return value => new Json(String((value as number) >>> 0));
  if (named === 'UINT_64' || (logical?.type === 'INTEGER' && logical.bitWidth === 64 && !logical.isSigned))
    return value => new Json(String(BigInt.asUintN(64, value as bigint)));
  if (named === 'FLOAT16') return value => new Json(floatText(halfOf(value as Uint8Array)));
  if (named === 'UUID') return value => uuidText(value as Uint8Array);
  if (named === 'JSON') return value => jsonCell(textOf(value as Uint8Array));
  if (type === 'FLOAT' || type === 'DOUBLE') return value => new Json(floatText(value as number));
  if (type === 'FIXED_LEN_BYTE_ARRAY')
    throw new NoText(
      'has the type fixed-size binary, whose bytes are not text: write them as text, such as hexadecimal digits',
    );
  if (type === 'BYTE_ARRAY') return value => textOf(value as Uint8Array);
  return value => new Json(String(value));
}

function textOf(bytes: Uint8Array): string {
  if (!isUtf8(bytes))
    throw new NoText(
      `holds bytes that are not UTF-8 text (${hexOf(bytes)}); convert it, or choose other columns`,
    );
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
}

function hexOf(bytes: Uint8Array): string {
  return `${Buffer.from(bytes.subarray(0, 16)).toString('hex')}${bytes.length > 16 ? '…' : ''}`;
}

function jsonCell(text: string): Json {
  try {
    return new Json(onOneLine(jsonValue(text)));
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw new NoText(`has the type JSON, and holds text that is not JSON: ${error.message}`);
  }
}

/** As Python writes a float: `1.0` and `-0.0` stay floats. */
function floatText(value: number): string {
  if (!Number.isFinite(value))
    throw new NoText(`is ${value}, which JSON cannot hold; choose other columns, or write null in its place`);
  if (Object.is(value, -0)) return '-0.0';
  const text = String(value);
  return /^-?\d+$/.test(text) ? `${text}.0` : text;
}

function halfOf(bytes: Uint8Array): number {
  const bits = ((bytes[1] ?? 0) << 8) | (bytes[0] ?? 0);
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * 2 ** (exponent - 15) * (1 + fraction / 1024);
}

/** The integer of a decimal: a number, or big-endian bytes in two's complement. */
function unscaled(value: unknown): bigint {
  if (!(value instanceof Uint8Array)) return BigInt(value as number | bigint);
  return value.length === 0
    ? 0n
    : BigInt.asIntN(value.length * 8, BigInt(`0x${Buffer.from(value).toString('hex')}`));
}

function decimalText(value: bigint, scale: number): string {
  const sign = value < 0n ? '-' : '';
  const digits = String(value < 0n ? -value : value).padStart(scale + 1, '0');
  return scale > 0 ? `${sign}${digits.slice(0, -scale)}.${digits.slice(-scale)}` : `${sign}${digits}`;
}

type Time = {kind: 'TIME' | 'TIMESTAMP'; unit: keyof typeof DIGITS; isUtc: boolean};

const DIGITS = {MILLIS: 3, MICROS: 6, NANOS: 9};

function timeOf({type, converted_type: converted, logical_type: logical}: SchemaElement): Time | undefined {
  if (logical?.type === 'TIME' || logical?.type === 'TIMESTAMP')
    return {kind: logical.type, unit: logical.unit, isUtc: logical.isAdjustedToUTC};
  const [, kind, unit] = /^(TIME|TIMESTAMP)_(MILLIS|MICROS)$/.exec(converted ?? '') ?? [];
  if (kind) return {kind: kind as Time['kind'], unit: unit as Time['unit'], isUtc: true};
  return type === 'INT96' ? {kind: 'TIMESTAMP', unit: 'NANOS', isUtc: false} : undefined;
}

const DAY_S = 86_400n;

/** `01:02:03`, or `2024-02-29T01:02:03.500`, with the digits of the unit where the fraction is not 0. */
function timeText(value: bigint, {kind, unit, isUtc}: Time): string {
  const parts = 10n ** BigInt(DIGITS[unit]);
  const fraction = ((value % parts) + parts) % parts;
  const seconds = (value - fraction) / parts;
  if (kind === 'TIME' && (seconds < 0n || seconds >= DAY_S))
    throw new NoText(`is a time of ${seconds} s, which no day has`);
  const [day, time] = instant(seconds).split('T') as [string, string];
  const text = fraction === 0n ? time : `${time}.${String(fraction).padStart(DIGITS[unit], '0')}`;
  return kind === 'TIME' ? text : `${day}T${text}${isUtc ? 'Z' : ''}`;
}

/** `2024-02-29T01:02:03` of seconds since 1970. */
function instant(seconds: bigint): string {
  const [least, most] = [-62_135_596_800n, 253_402_300_799n];
  if (seconds < least || seconds > most)
    throw new NoText(`is an instant ${seconds} s after 1970, outside of the years 1 to 9999`);
  return new Date(Number(seconds) * 1000).toISOString().slice(0, 19);
}

function uuidText(bytes: Uint8Array): string {
  return Buffer.from(bytes)
    .toString('hex')
    .replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
