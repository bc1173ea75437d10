import type {Document} from '../../shared/ports/ports.ts';

/** A document at `path` of exactly `bytes`, by Firestore's formula. */
export function documentOf(bytes: number, path: string): Document {
  const name = path.split('/').reduce((sum, part) => sum + part.length + 1, 16);
  const rest = bytes - name - 32 - 2 * ('a'.length + 1 + 1);
  return {a: 'x'.repeat(Math.floor(rest / 2)), b: 'x'.repeat(Math.ceil(rest / 2))};
}

/** `{a: {a: … 1}}` with `names` field names on the way to 1. */
export function nested(names: number): Document {
  return {a: names === 1 ? 1 : nested(names - 1)};
}

function manyFields(count: number): Document {
  return Object.fromEntries(Array.from({length: count}, (_, n) => [`f${n}`, n]));
}

export const MIB = 2 ** 20;

/** Documents at the limits: Firestore must accept each of them. */
export const VALID: {name: string; path?: string; data: Document}[] = [
  {name: 'exactly 1 MiB', data: documentOf(MIB, 'runs/r')},
  {
    name: 'exactly 1 MiB at a long path',
    path: `runs/${'r'.repeat(1000)}`,
    data: documentOf(MIB, `runs/${'r'.repeat(1000)}`),
  },
  {name: 'one field of the largest size', data: {a: 'x'.repeat(1_048_486)}},
  {name: '20 levels', data: nested(20)},
  {
    name: '20 levels of lists and maps',
    data: {a: [{a: [{a: [{a: [{a: [{a: [{a: [{a: [{a: [{a: 1}]}]}]}]}]}]}]}]}]},
  },
  {name: 'a field name of 1,500 bytes', data: {['é'.repeat(750)]: 1}},
  {name: 'an id of 1,500 bytes', path: `runs/${'é'.repeat(750)}`, data: {}},
  {name: 'underscores', path: 'runs/__a', data: {__a: 1, a__: 2, _: 3, __: 4}},
  {name: '20,000 indexed fields', data: manyFields(20_000)},
  {
    name: 'the first and the last instant',
    data: {a_at: '0001-01-01T00:00:00.000Z', b_at: '9999-12-31T23:59:59.999Z'},
  },
  {name: 'an object without a prototype', data: Object.assign(Object.create(null), {a: 1})},
];
