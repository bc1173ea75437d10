/** Limits of queries, the same as those of Firestore, so that every adapter answers the same queries. */

import {checkCollectionPath, isInstant, isInstantField, RESERVED} from './document-limits.ts';
import type {CollectionPath, Filter, Query} from './ports.ts';

/** Firestore indexes only this many bytes of a string, so a longer string cannot be found. */
const SEARCHABLE_BYTES = 1500;
const ALTERNATIVES = 30;
const QUERY_FIELD = /^[\w-]+(\.[\w-]+)*$/;

/**
 * Throws `TypeError` for a query that Firestore refuses, or that needs a composite index.
 * All filters other than `==` and `in`, and `order_by`, must name the same field.
 */
export function checkQuery(collection: CollectionPath, query: Query): void {
  checkCollectionPath(collection);
  const {where = [], order_by, limit, after} = query;
  let alternatives = 1;
  for (const filter of where) {
    checkQueryField(collection, filter.field);
    const values = filter.op === 'in' ? filter.value : [filter.value];
    if (!Array.isArray(values) || values.length === 0)
      throw badQuery(collection, `"in" on ${filter.field} needs a list with at least one value`);
    if (filter.op === 'in') alternatives *= values.length;
    for (const value of values) checkFilterValue(collection, filter, value);
  }
  if (alternatives > ALTERNATIVES)
    throw badQuery(collection, `it asks for ${alternatives} alternatives and the most is ${ALTERNATIVES}`);
  if (order_by) checkQueryField(collection, order_by.field);
  const ranged = rangeField(query);
  const ordering = order_by?.field ?? ranged;
  for (const {field, op} of where)
    if (op !== '==' && op !== 'in' && field !== ordering)
      throw badQuery(
        collection,
        `a range on ${field} cannot stand beside a range or an order on ${ordering}`,
      );
  if (ranged && !order_by && limit !== undefined)
    throw badQuery(collection, `a limit with a range on ${ranged} needs order_by ${ranged}`);
  if (after !== undefined && (ordering !== undefined || after === '' || after.includes('/')))
    throw badQuery(collection, `"after" is the id of a document, and goes with no order and no range`);
  if (limit !== undefined && !(Number.isSafeInteger(limit) && limit > 0 && limit < 2 ** 31))
    throw badQuery(collection, `the limit ${limit} is not a positive whole number`);
}

export function checkSum(collection: CollectionPath, fields: readonly string[]): void {
  checkCollectionPath(collection);
  if (fields.length === 0) throw badQuery(collection, 'it names no field to add up');
  for (const field of fields) checkQueryField(collection, field);
}

/** The field of the filters `<`, `<=`, `>` and `>=`, if any. */
export function rangeField(query: Query): string | undefined {
  return query.where?.find(({op}) => op !== '==' && op !== 'in')?.field;
}

function checkQueryField(collection: CollectionPath, field: string): void {
  if (!QUERY_FIELD.test(field) || field.split('.').some(name => RESERVED.test(name)))
    throw badQuery(collection, `${JSON.stringify(field)} is not a field name, nor a path of them with dots`);
}

function checkFilterValue(collection: CollectionPath, {field, op}: Filter, value: unknown): void {
  if (value === null && op === '==') return;
  const scalar = typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
  if (!scalar || Number.isNaN(value) || Math.abs(Number(value)) === Infinity)
    throw badQuery(
      collection,
      `${field} ${op} ${JSON.stringify(value)}: only text, numbers and booleans compare`,
    );
  if (isInstantField(field) && !isInstant(value))
    throw badQuery(collection, `${field} is an instant, and ${JSON.stringify(value)} is not`);
  if (typeof value !== 'string') return;
  if (!value.isWellFormed() || Buffer.byteLength(value) > SEARCHABLE_BYTES)
    throw badQuery(
      collection,
      `the text for ${field} is not valid Unicode, or over ${SEARCHABLE_BYTES} bytes`,
    );
}

function badQuery(collection: CollectionPath, cause: string): TypeError {
  return new TypeError(`Failed to query ${collection}: ${cause}`);
}
