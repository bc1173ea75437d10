/** A query of the Store as SQL, with Firestore's meaning. `checkQuery` limits the queries. */
import type {CollectionPath, Filter, Query, Value} from '../ports.ts';

type Sql = {sql: string; values: (string | number)[]};

export function selectDocuments(columns: string, collection: CollectionPath, query: Query): Sql {
  const conditions: Sql[] = [
    {sql: 'collection = ?', values: [collection]},
    ...(query.where ?? []).map(matching),
    ...(query.order_by ? [present(query.order_by.field)] : []),
    ...(query.after === undefined ? [] : [{sql: 'id > ?', values: [query.after]}]),
  ];
  const order = query.order_by ? ordering(query.order_by.field, query.order_by.direction) : ID_ORDER;
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

/** Selects the sums as `sum_0` and so on, in the order of the fields. */
export function sumFields(collection: CollectionPath, fields: readonly string[]): Sql {
  const sums = fields.map(
    (_, index) => `sum(case when ${TYPE} in ('integer', 'real') then ${NUMBER} end) as sum_${index}`,
  );
  return {
    sql: `select ${sums.join(', ')} from documents where collection = ?`,
    values: [...fields.flatMap(field => [jsonPath(field), jsonPath(field)]), collection],
  };
}

const NOTHING: Sql = {sql: '', values: []};
const ID_ORDER: Sql = {sql: ' order by id', values: []};

/** `json_type` is null for a missing field, and 'null' for a field that holds null. */
const TYPE = 'json_type(data, ?)';
/**
 * The text of a number beyond 2^53 may have no decimal point. Read as a 64-bit integer, the number would not equal its original double.
 */
const NUMBER = 'cast(json_extract(data, ?) as real)';
const TEXT = 'json_extract(data, ?)';

/** Compares a value only with values of its own type. */
function matching({field, op, value}: Filter): Sql {
  if (op === 'in') {
    const choices = (value as Value[]).map(choice => matching({field, op: '==', value: choice}));
    return {
      sql: choices.map(({sql}) => `(${sql})`).join(' or '),
      values: choices.flatMap(({values}) => values),
    };
  }
  const path = jsonPath(field);
  const operator = op === '==' ? '=' : op;
  if (value === null) return {sql: `${TYPE} = 'null'`, values: [path]};
  if (typeof value === 'string')
    return {sql: `${TYPE} = 'text' and ${TEXT} ${operator} ?`, values: [path, path, value]};
  if (typeof value === 'number')
    return {sql: `${TYPE} in ('integer', 'real') and ${NUMBER} ${operator} ?`, values: [path, path, value]};
  return {
    sql: `case ${TYPE} when 'false' then 0 when 'true' then 1 end ${operator} ?`,
    values: [path, Number(value)],
  };
}

function present(field: string): Sql {
  return {sql: `${TYPE} is not null`, values: [jsonPath(field)]};
}

/** Orders null, booleans, numbers, text, then lists and maps. Lists and maps keep the order of ids. */
function ordering(field: string, direction: 'asc' | 'desc' = 'asc'): Sql {
  const path = jsonPath(field);
  const rank = `case ${TYPE} when 'null' then 0 when 'false' then 1 when 'true' then 2 when 'integer' then 3
    when 'real' then 3 when 'text' then 4 when 'array' then 5 else 6 end`;
  const value = `case ${TYPE} when 'integer' then ${NUMBER} when 'real' then ${NUMBER} when 'text' then ${TEXT} end`;
  return {
    sql: ` order by ${rank} ${direction}, ${value} ${direction}, id ${direction}`,
    values: [path, path, path, path, path],
  };
}

function jsonPath(field: string): string {
  return `$${field
    .split('.')
    .map(name => `."${name}"`)
    .join('')}`;
}
