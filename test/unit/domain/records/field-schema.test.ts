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
const cases: [keyof typeof shapes, takes: Record<string, unknown[]>, refuses: Record<string, unknown[]>][] = [
  ['stored', {wait_s: [0.5, 99], seats: [0, 99], usd: [null, 99]}, {wait_s: [0], seats: [-1], color: ['x']}],
  ['message', {wait_s: [1, 9], seats: [0], usd: [null]}, {wait_s: [0.5, 10], usd: [0], title: [''], x: [1]}],
  ['input', {fast: [false], rows: [8], title: ['abcde']}, {rows: [5], title: ['a\n', 'abcdef', '\ud800']}],
  [
    'environment',
    {GLEANER_WAIT_S: ['0.5'], GLEANER_FAST: ['false']},
    {GLEANER_WAIT_S: ['0', '6'], GLEANER_SEATS: ['0'], GLEANER_FAST: ['yes'], GLEANER_COLOR: ['x']},
  ],
];

describe('the schema of declared fields', () => {
  for (const [name, takes, refuses] of cases)
    it(`of ${name} has its own bounds`, () => {
      const isTaken = (key: string, value: unknown) => shapes[name].safeParse({[key]: value}).success;
      for (const [key, values] of Object.entries(takes))
        for (const value of values) assert.ok(isTaken(key, value), `${key} ${value}`);
      for (const [key, values] of Object.entries(refuses))
        for (const value of values) assert.ok(!isTaken(key, value), `${key} ${value}`);
    });

  it('of documents and of the environment gives defaults', () => {
    assert.deepEqual(z.object(storedShape(TABLE)).parse({}), defaultsOf(TABLE));
    const {GLEANER_FAST, GLEANER_WAIT_S} = shapes.environment.parse({GLEANER_FAST: 'false'});
    assert.deepEqual([GLEANER_FAST, GLEANER_WAIT_S], [false, 2]);
  });
});
