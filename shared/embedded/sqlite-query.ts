/** A query of the Store as SQL, with Firestore's meaning. `checkQuery` limits the queries. */
import type {CollectionPath, Filter, Query, Value} from '../ports/ports.ts';

type Sql = {sql: string; values: (string | number)[]};

export function selectDocuments(columns: string, collection: CollectionPath, query: Query): Sql {
  const conditions: Sql[] = [
    {sql: 'collection = ?', values: [collection]},
    ...(query.where ?? []).map(matching),
    ...(query.order_by ? [present(query.order_by.field)] : []),
    ...(query.after === undefined ? [] : [{sql: 'id > ?', values: [query.after]}]),
  ];
  const order = query.order_by ? ordering(query.order_by, query.where ?? []) : ID_ORDER;
  const tail = columns.startsWith('count') ? NOTHING : order;
  return {
    sql: `select ${columns} from documents where ${conditions.map(({sql}) => `(${sql})`).join(' and ')}${tail.sql}${
      query.limit === undefined ? '' : ' limit ?'
    }`,
    values: [
      ...conditions.flatMap(({values}) => values),
      ...tail.values,
      ...(query.limit === undefined ? [] : [query.limit]),
    ],
  };
}

/**
 * Selects the sums as `sum_0` and so on, in the order of the fields. Numbers are counted by their JSON; the JSON of any other value starts
 * with a character that no number has, and counts as 0.
 */
export function sumFields(collection: CollectionPath, fields: readonly string[]): Sql {
  const sums = fields.map((field, index) => `total(data -> ${jsonPath(field)}) as sum_${index}`);
  return {sql: `select ${sums.join(', ')} from documents where collection = ?`, values: [collection]};
}

const NOTHING: Sql = {sql: '', values: []};
const ID_ORDER: Sql = {sql: ' order by id', values: []};

/** `json_type` is null for a missing field, and 'null' for a field that holds null. */
function typeOf(field: string): string {
  return `json_type(data, ${jsonPath(field)})`;
}

function textOf(field: string): string {
  return `json_extract(data, ${jsonPath(field)})`;
}

/** The text of a number beyond 2^53 may have no decimal point. Read as a 64-bit integer, it would not equal the original double. */
function numberOf(field: string): string {
  return `cast(${textOf(field)} as real)`;
}

/** The expressions of an index for filters on this field. SQLite compares them with those of a query as text. */
export function indexOn(field: string): string {
  return `collection, ${textOf(field)}, ${typeOf(field)}`;
}

function matching({field, op, value}: Filter): Sql {
  if (op === 'in') {
    const choices = value as Value[];
    if (choices.every(choice => typeof choice === 'string'))
      return {
        sql: `${textOf(field)} in (${choices.map(() => '?')}) and ${typeOf(field)} = 'text'`,
        values: choices,
      };
    const each = choices.map(choice => matching({field, op: '==', value: choice}));
    return {sql: each.map(({sql}) => `(${sql})`).join(' or '), values: each.flatMap(({values}) => values)};
  }
  const operator = op === '==' ? '=' : op;
  if (value === null) return {sql: `${typeOf(field)} = 'null'`, values: []};
  if (typeof value === 'string')
    return {sql: `${textOf(field)} ${operator} ? and ${typeOf(field)} = 'text'`, values: [value]};
  if (typeof value === 'number')
    return {
      sql: `${typeOf(field)} in ('integer', 'real') and ${numberOf(field)} ${operator} ?`,
      values: [value],
    };
  if (op === '==')
    return {sql: `${textOf(field)} = ${Number(value)} and ${typeOf(field)} = '${value}'`, values: []};
  return {
    sql: `case ${typeOf(field)} when 'false' then 0 when 'true' then 1 end ${operator} ?`,
    values: [Number(value)],
  };
}

function present(field: string): Sql {
  return {sql: `${typeOf(field)} is not null`, values: []};
}

/**
 * Orders null, booleans, numbers, text, then lists and maps, which keep the order of ids. If a filter leaves only texts, an index can provide
 * the order.
 */
function ordering({field, direction = 'asc'}: NonNullable<Query['order_by']>, where: readonly Filter[]): Sql {
  if (where.some(filter => filter.field === field && typeof filter.value === 'string'))
    return {sql: ` order by ${textOf(field)} ${direction}, id ${direction}`, values: []};
  const type = typeOf(field);
  const rank = `case ${type} when 'null' then 0 when 'false' then 1 when 'true' then 2 when 'integer' then 3
    when 'real' then 3 when 'text' then 4 when 'array' then 5 else 6 end`;
  const number = numberOf(field);
  const value = `case ${type} when 'integer' then ${number} when 'real' then ${number} when 'text' then ${textOf(field)} end`;
  return {sql: ` order by ${rank} ${direction}, ${value} ${direction}, id ${direction}`, values: []};
}

/** The path of the field as a literal: SQLite uses an index only if no part of its expression is a parameter. */
function jsonPath(field: string): string {
  const path = field
    .split('.')
    .map(name => `."${name}"`)
    .join('');
  return `'$${path.replaceAll("'", "''")}'`;
}
