/** The contract of the Store in its simplest form, a Map, and random uses of it for the adapters to be compared with. */
import fc from 'fast-check';
import type {Document, Filter, Query, Store, Stored, Value} from '../../shared/ports.ts';

export type Operation =
  | {kind: 'create' | 'set'; path: string; data: Document}
  | {kind: 'delete'; path: string};
export type Step =
  | {step: 'transaction'; reads: string[]; operations: Operation[]; fails: boolean}
  | {step: 'query'; collection: string; query: Query};

/** What a caller sees of a step. */
export type Seen = {outcome: string; documents: unknown};

export class ModelStore {
  #documents = new Map<string, Document>();

  run(step: Step): Seen {
    return step.step === 'query' ? this.#query(step) : this.#transaction(step);
  }

  #transaction({reads, operations, fails}: Step & {step: 'transaction'}): Seen {
    const documents = reads.map(path => this.#documents.get(path));
    const next = new Map(this.#documents);
    const written = new Set<string>();
    let taken = false;
    for (const operation of operations) {
      const {kind, path} = operation;
      // Written by this very transaction: it fails where it stands. There before: it fails the commit, if it comes to one.
      if (kind === 'create' && written.has(path)) return {outcome: 'AlreadyExists', documents};
      if (kind === 'create' && next.has(path)) taken = true;
      if (kind === 'delete') {
        next.delete(path);
        written.delete(path);
      } else {
        next.set(path, JSON.parse(JSON.stringify(operation.data)));
        written.add(path);
      }
    }
    if (fails) return {outcome: 'Oops', documents};
    if (taken) return {outcome: 'AlreadyExists', documents};
    this.#documents = next;
    return {outcome: 'done', documents};
  }

  #query({collection, query}: Step & {step: 'query'}): Seen {
    const {where = [], order_by, limit, after} = query;
    const field = order_by?.field;
    const found = [...this.#documents]
      .map(([path, data]) => ({path, id: path.slice(path.lastIndexOf('/') + 1), data}))
      .filter(({path, id}) => path === `${collection}/${id}`)
      .filter(({data}) => where.every(filter => matches(data, filter)))
      .filter(({id}) => after === undefined || compareText(id, after) > 0)
      .filter(({data}) => field === undefined || fieldOf(data, field) !== undefined)
      .sort((a, b) => compareBy(a, b, field) * (order_by?.direction === 'desc' ? -1 : 1));
    return {outcome: 'done', documents: found.slice(0, limit)};
  }
}

export async function runOn(store: Store, step: Step): Promise<Seen> {
  if (step.step === 'query')
    return {outcome: 'done', documents: await store.query(step.collection, step.query)};
  let documents: (Document | undefined)[] = [];
  const outcome = await store
    .transaction(async tx => {
      documents = [];
      for (const path of step.reads) documents.push(await tx.get(path));
      for (const operation of step.operations)
        if (operation.kind === 'delete') tx.delete(operation.path);
        else tx[operation.kind](operation.path, operation.data);
      if (step.fails) throw Object.assign(new Error('work failed'), {name: 'Oops'});
      return 'done';
    })
    .catch((error: Error) => error.name);
  return {outcome, documents};
}

function fieldOf(data: Document, field: string): Value | undefined {
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
  if (op === 'in') return (value as Value[]).includes(own);
  if (rank(own) !== rank(value)) return false;
  const order = compare(own, value);
  switch (op) {
    case '==':
      return order === 0;
    case '<':
      return order < 0;
    case '<=':
      return order <= 0;
    case '>':
      return order > 0;
    case '>=':
      return order >= 0;
  }
}

function compareBy(a: Stored, b: Stored, field: string | undefined): number {
  const order = field ? compare(fieldOf(a.data, field) ?? null, fieldOf(b.data, field) ?? null) : 0;
  return order || compareText(a.id, b.id);
}

function compare(a: Value, b: Value): number {
  if (rank(a) !== rank(b)) return rank(a) - rank(b);
  if (typeof a === 'string') return compareText(a, String(b));
  return Number(a) - Number(b) || 0;
}

function rank(value: Value): number {
  return value === null ? 0 : 1 + ['boolean', 'number', 'string', 'object'].indexOf(typeof value);
}

/** By UTF-8 bytes, which is by code point; JavaScript's own order differs beyond the basic plane. */
function compareText(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

const HOSTILE = [
  '',
  'a',
  'A',
  'é',
  'e\u0301',
  '\uffff',
  '\u{1f600}',
  "'; drop table documents; --",
  '"',
  '\\',
  '%',
  '\0',
  ' ',
];

const text = fc.oneof(fc.constantFrom(...HOSTILE), fc.string({unit: 'binary', maxLength: 5}));
const number = fc.oneof(
  fc.integer({min: -3, max: 3}),
  fc.constantFrom(0.5, 2 ** 53 - 1, 2 ** 53, 2 ** 60, 2 ** 62 + 2 ** 10, 1e21, 5e-324, -1e300, 0.1 + 0.2),
  fc.double({noNaN: true, noDefaultInfinity: true}),
);
const scalar = fc.oneof(fc.constant(null), fc.boolean(), number, text);
const instant = fc
  .integer({min: Date.parse('0001-01-01T00:00:00.000Z'), max: Date.parse('9999-12-31T23:59:59.999Z')})
  .map(time => new Date(time).toISOString());
const fieldName = fc
  .oneof(
    fc.constantFrom(...HOSTILE, 'a.b', '_', 'constructor', 'toString'),
    fc.string({unit: 'binary', maxLength: 3}),
  )
  .filter(name => /^[^"\\\p{Cc}]+$/u.test(name) && !name.endsWith('_at'));
const {tree} = fc.letrec<{tree: Value}>(tie => ({
  tree: fc.oneof(
    {maxDepth: 3},
    scalar,
    fc.array(scalar, {maxLength: 3}),
    fc.array(fc.dictionary(fieldName, tie('tree'), {maxKeys: 2, noNullPrototype: true}), {maxLength: 2}),
    fc.dictionary(fieldName, tie('tree'), {maxKeys: 3, noNullPrototype: true}),
  ),
}));

/** `a`, `b` and `m.n` are searched for and hold one value each; `tree` only has to come back as it was. */
const document: fc.Arbitrary<Document> = fc.record(
  {a: scalar, b: scalar, m: fc.record({n: scalar}), seen_at: fc.option(instant), tree},
  {requiredKeys: [], noNullPrototype: true},
);

const documentId = fc.constantFrom(
  ...['a', 'A', 'é', '\uffff', '\u{1f600}', "'", '"%', '\n', '007', '7', '_'],
);

const path = fc
  .tuple(fc.constantFrom('runs', 'runs/r/streams', 'runs/r'), documentId)
  .map(([collection, id]) => (collection === 'runs/r' ? 'runs/r' : `${collection}/${id}`));

const operation: fc.Arbitrary<Operation> = fc.oneof(
  fc.record({kind: fc.constantFrom('create' as const, 'set' as const), path, data: document}),
  fc.record({kind: fc.constant('delete' as const), path}),
);

const field = fc.constantFrom('a', 'b', 'm.n', 'seen_at');
const filterValue = (name: string): fc.Arbitrary<Value> =>
  name === 'seen_at' ? instant : scalar.filter(value => value !== null);
const equality: fc.Arbitrary<Filter> = field.chain(name =>
  fc.oneof(
    fc.record({
      field: fc.constant(name),
      op: fc.constant('==' as const),
      value: fc.option(filterValue(name)),
    }),
    fc.record({
      field: fc.constant(name),
      op: fc.constant('in' as const),
      value: fc.array(filterValue(name), {minLength: 1, maxLength: 4}),
    }),
  ),
);
const range = (name: string): fc.Arbitrary<Filter> =>
  fc.record({
    field: fc.constant(name),
    op: fc.constantFrom('<' as const, '<=' as const, '>' as const, '>=' as const),
    value: filterValue(name),
  });
const query: fc.Arbitrary<Query> = fc.tuple(field, fc.boolean()).chain(([name, ordered]) =>
  fc
    .record({
      equalities: fc.array(equality, {maxLength: 2}),
      ranges: fc.array(range(name), {maxLength: 2}),
      direction: fc.constantFrom('asc' as const, 'desc' as const),
      limit: fc.option(fc.integer({min: 1, max: 5})),
      after: fc.option(documentId),
    })
    .map(({equalities, ranges, direction, limit, after}) => ({
      where: [...equalities, ...ranges],
      ...(ordered ? {order_by: {field: name, direction}} : {}),
      ...(after !== null && !ordered && ranges.length === 0 ? {after} : {}),
      ...(limit !== null && (ordered || ranges.length === 0) ? {limit} : {}),
    })),
);

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 2,
    arbitrary: fc.record({
      step: fc.constant('transaction' as const),
      reads: fc.array(path, {maxLength: 3}),
      operations: fc.array(operation, {maxLength: 4}),
      fails: fc.integer({min: 0, max: 9}).map(number => number === 0),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      step: fc.constant('query' as const),
      collection: fc.constantFrom('runs', 'runs/r/streams'),
      query,
    }),
  },
);

/** Ends with a look at everything. */
export const story: fc.Arbitrary<Step[]> = fc
  .array(step, {minLength: 1, maxLength: 25})
  .map(steps => [
    ...steps,
    {step: 'query', collection: 'runs', query: {}},
    {step: 'query', collection: 'runs/r/streams', query: {}},
  ]);
