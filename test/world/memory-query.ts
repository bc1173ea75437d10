/** The meaning of a query of the Store, for documents in memory. */
import type {Document, Filter, Query, Stored, Value} from '../../shared/ports/ports.ts';

/** Answers a query of a collection, whose documents are in the order of their ids. */
export function select(stored: Stored[], {where = [], order_by, limit, after}: Query): Stored[] {
  const found = stored.filter(
    ({id, data}) =>
      (after === undefined || compareText(id, after) > 0) && where.every(filter => matches(data, filter)),
  );
  return (order_by ? ordered(found, order_by) : found).slice(0, limit);
}

function ordered(stored: Stored[], {field, direction}: NonNullable<Query['order_by']>): Stored[] {
  const sign = direction === 'desc' ? -1 : 1;
  return stored
    .map(each => ({each, value: fieldOf(each.data, field)}))
    .filter((one): one is {each: Stored; value: Value} => one.value !== undefined)
    .sort((a, b) => sign * (compare(a.value, b.value) || compareText(a.each.id, b.each.id)))
    .map(({each}) => each);
}

/** The value of a field, or of a dotted path; undefined where it is missing. */
export function fieldOf(data: Document, field: string): Value | undefined {
  let value: Value | undefined = data;
  for (const name of field.split('.')) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
    value = Object.hasOwn(value, name) ? value[name] : undefined;
  }
  return value;
}

function matches(data: Document, {field, op, value}: Filter): boolean {
  const own = fieldOf(data, field);
  if (own === undefined) return false;
  if (op === '==') return own === value;
  if (op === 'in') return (value as Value[]).includes(own);
  if (rank(own) !== rank(value)) return false;
  const order = compare(own, value);
  return op === '<' ? order < 0 : op === '<=' ? order <= 0 : op === '>' ? order > 0 : order >= 0;
}

function compare(a: Value, b: Value): number {
  if (typeof a === 'string' && typeof b === 'string') return compareText(a, b);
  if (rank(a) !== rank(b)) return rank(a) - rank(b);
  return typeof a === 'object' ? 0 : Number(a) - Number(b);
}

const RANKS = ['boolean', 'number', 'string', 'object'];

function rank(value: Value): number {
  return value === null ? -1 : RANKS.indexOf(typeof value);
}

/** Compares by code point, as the bytes of UTF-8 do. JavaScript's own order differs beyond the basic plane. */
export function compareText(a: string, b: string): number {
  if (HIGH.test(a) || HIGH.test(b)) return Buffer.compare(Buffer.from(a), Buffer.from(b));
  return a < b ? -1 : a > b ? 1 : 0;
}

const HIGH = /[\ud800-\uffff]/;
