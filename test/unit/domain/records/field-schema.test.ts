/** The schemas of a table with a field of every kind: tsc cannot see whether they have the types of its values. */
import assert from 'node:assert/strict';
import {z} from 'zod';
import {defaultsOf, type Fields, flag, whole, word} from '../../../../shared/domain/records/field.ts';
import {
  environmentShape,
  inputShape,
  messageShape,
  storedShape,
} from '../../../../shared/domain/records/field-schema.ts';

const deployed = {kind: 'number', above: 0, most: 5} as const;
const means = 'A field.';
const TABLE = {
  wait_s: {...{kind: 'number', least: 1, most: 9, deployed, default: 2}, means},
  seats: {...whole(0, 9), deployed: whole(1, 9), default: 3, means},
  usd: {...{kind: 'number', above: 0, most: 9, default: null}, means},
  fast: {...flag, default: true, means},
  color: {...word('red', 'blue'), default: 'red', means},
  title: {...{kind: 'text', most: 5, isName: true}, default: 'a', means},
  rows: {...{kind: 'own', form: 'power'}, default: 4, means},
} as const satisfies Fields;

const shapes = {
  stored: z.looseObject(storedShape(TABLE)),
  message: z.strictObject(messageShape(TABLE)),
  input: z.strictObject(inputShape(TABLE, {power: z.literal([4, 8])})).partial(),
  environment: z.object(environmentShape(TABLE)),
};
const cases: [keyof typeof shapes, key: string, takes: unknown[], refuses: unknown[]][] = [
  ['stored', 'wait_s', [0.5, 99], [-1]],
  ['stored', 'color', ['red'], ['x']],
  ['message', 'wait_s', [1, 9], [0.5, 10]],
  ['message', 'usd', [null, 1], [0]],
  ['input', 'rows', [8], [5]],
  ['input', 'title', ['abcde'], ['a\n', 'abcdef', '\ud800', '']],
  ['environment', 'GLEANER_WAIT_S', ['0.5'], ['0', '6']],
  ['environment', 'GLEANER_FAST', ['false'], ['yes']],
  ['environment', 'GLEANER_SEATS', ['1'], ['0']],
];

describe('the schema of declared fields', () => {
  for (const [name, key, takes, refuses] of cases)
    it(`of ${name} takes only the values of ${key}`, () => {
      const isTaken = (value: unknown) => shapes[name].safeParse({[key]: value}).success;
      assert.deepEqual(
        [takes.map(isTaken), refuses.map(isTaken)],
        [takes.map(() => true), refuses.map(() => false)],
      );
    });

  it('gives defaults to documents and to the environment', () => {
    assert.deepEqual(shapes.stored.parse({}), defaultsOf(TABLE));
    const {GLEANER_FAST, GLEANER_WAIT_S} = shapes.environment.parse({GLEANER_FAST: 'false'});
    assert.deepEqual([GLEANER_FAST, GLEANER_WAIT_S], [false, 2]);
  });
});
