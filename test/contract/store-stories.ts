/** Random uses of a Store, for the comparison of adapters with the model. */
import fc from 'fast-check';
import type {Document, Filter, Query, Value} from '../../shared/ports/ports.ts';
import type {Operation, Step} from './store-model.ts';

const HOSTILE = [
  ...['', 'a', 'A', 'é', 'e\u0301', '\uffff', '\u{1f600}', "'; drop table documents; --"],
  ...['"', '\\', '%', '\0', ' '],
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

/** Documents: queries search for `a`, `b` and `m.n`; `tree` only has to come back unchanged. */
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

/** Random steps, and then a query for every document. */
export const story: fc.Arbitrary<Step[]> = fc
  .array(step, {minLength: 1, maxLength: 25})
  .map(steps => [
    ...steps,
    {step: 'query', collection: 'runs', query: {}},
    {step: 'query', collection: 'runs/r/streams', query: {}},
  ]);
