/** A query of the Store as SQL, with Firestore's meaning. `checkQuery` limits the queries. */
import type {CollectionPath, Filter, Query, Value} from '../ports/ports.ts';

type Sql = {sql: string; values: (string | number)[]};

const sqlOf = (sql: string, ...values: Sql['values']): Sql => ({sql, values});

export function selectDocuments(columns: string, collection: CollectionPath, query: Query): Sql {
  const conditions: Sql[] = [
    sqlOf('collection = ?', collection),
    ...(query.where ?? []).map(matching),
    ...(query.order_by ? [sqlOf(`${typeOf(query.order_by.field)} is not null`)] : []),
    ...(query.after === undefined ? [] : [sqlOf('id > ?', query.after)]),
  ];
  const order = query.order_by ? ordering(query.order_by, query.where ?? []) : ID_ORDER;
  const tail = columns.startsWith('count') ? NOTHING : order;
  const limit = query.limit === undefined ? NOTHING : sqlOf(' limit ?', query.limit);
  const where = conditions.map(({sql}) => `(${sql})`).join(' and ');
  return sqlOf(
    `select ${columns} from documents where ${where}${tail.sql}${limit.sql}`,
    ...[...conditions, tail, limit].flatMap(({values}) => values),
  );
}

/**
 * Selects the sums as `sum_0` and so on, in the order of the fields. Numbers are counted by their JSON; the JSON of any other value starts
 * with a character that no number has, and counts as 0.
 */
export function sumFields(collection: CollectionPath, fields: readonly string[]): Sql {
  const sums = fields.map((field, index) => `total(data -> ${jsonPath(field)}) as sum_${index}`);
  return sqlOf(`select ${sums.join(', ')} from documents where collection = ?`, collection);
}

const NOTHING = sqlOf('');
const ID_ORDER = sqlOf(' order by id');

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
      return sqlOf(
        `${textOf(field)} in (${choices.map(() => '?')}) and ${typeOf(field)} = 'text'`,
        ...choices,
      );
    const each = choices.map(choice => matching({field, op: '==', value: choice}));
    return {sql: each.map(({sql}) => `(${sql})`).join(' or '), values: each.flatMap(({values}) => values)};
  }
  const operator = op === '==' ? '=' : op;
  if (value === null) return sqlOf(`${typeOf(field)} = 'null'`);
  if (typeof value === 'string')
    return sqlOf(`${textOf(field)} ${operator} ? and ${typeOf(field)} = 'text'`, value);
  if (typeof value === 'number')
    return sqlOf(`${typeOf(field)} in ('integer', 'real') and ${numberOf(field)} ${operator} ?`, value);
  if (op === '==') return sqlOf(`${textOf(field)} = ${Number(value)} and ${typeOf(field)} = '${value}'`);
  return sqlOf(
    `case ${typeOf(field)} when 'false' then 0 when 'true' then 1 end ${operator} ?`,
    Number(value),
  );
}

/**
 * Orders null, booleans, numbers, text, then lists and maps, which keep the order of ids. If a filter leaves only texts, an index can provide
 * the order.
 */
function ordering({field, direction = 'asc'}: NonNullable<Query['order_by']>, where: readonly Filter[]): Sql {
  if (where.some(filter => filter.field === field && typeof filter.value === 'string'))
    return sqlOf(` order by ${textOf(field)} ${direction}, id ${direction}`);
  const type = typeOf(field);
  const rank = `case ${type} when 'null' then 0 when 'false' then 1 when 'true' then 2 when 'integer' then 3
    when 'real' then 3 when 'text' then 4 when 'array' then 5 else 6 end`;
  const number = numberOf(field);
  const value = `case ${type} when 'integer' then ${number} when 'real' then ${number} when 'text' then ${textOf(field)} end`;
  return sqlOf(` order by ${rank} ${direction}, ${value} ${direction}, id ${direction}`);
}

/** The path of the field as a literal: SQLite uses an index only if no part of its expression is a parameter. */
function jsonPath(field: string): string {
  const path = field
    .split('.')
    .map(name => `."${name}"`)
    .join('');
  return `'$${path.replaceAll("'", "''")}'`;
}
