/** Contract of the Store for queries and sums. */
import assert from 'node:assert/strict';
import type {Document, Filter, Query} from '../../shared/ports/ports.ts';
import type {Stores} from './store-handles.ts';

const ZOO: Record<string, Document> = {
  'zoo/ant': {legs: 6, name: 'ant', kind: 'insect', seen_at: '2026-01-01T00:00:00.000Z', home: {zone: 'a'}},
  'zoo/bat': {legs: 2, name: 'bat', kind: 'mammal', seen_at: '2026-01-02T00:00:00.000Z', home: {zone: 'b'}},
  'zoo/cat': {legs: 4, name: 'cat', kind: 'mammal', seen_at: null, home: {}},
  'zoo/dog': {legs: 4.0, name: 'dog', kind: 'mammal', seen_at: '2025-12-31T23:59:59.999Z', home: 'a'},
  'zoo/eel': {legs: 0, name: 'eel', kind: null, home: null},
  'zoo/fly': {legs: '6', name: '\u{1f600}', kind: 'insect', home: [{zone: 'a'}]},
  'zoo/gnu': {legs: true, name: '\uffff', tags: ['a'], weight: 2 ** 62 + 2 ** 10},
  'zoo/hen': {legs: null, name: 'Hen'},
  'zoo/jay': {},
};

const by = (field: string, op: Filter['op'], value: Filter['value']): Filter => ({field, op, value});

const QUERIES: {name: string; query: Query; finds: string[]}[] = [
  {
    name: 'return every document in the order of ids',
    query: {},
    finds: ['ant', 'bat', 'cat', 'dog', 'eel', 'fly', 'gnu', 'hen', 'jay'],
  },
  {name: 'stop at the limit', query: {limit: 2}, finds: ['ant', 'bat']},
  {name: 'start after an id', query: {after: 'eel'}, finds: ['fly', 'gnu', 'hen', 'jay']},
  {name: 'start after a missing id, up to a limit', query: {after: 'coot', limit: 2}, finds: ['dog', 'eel']},
  {
    name: 'start after an id among the chosen documents',
    query: {where: [by('kind', 'in', ['insect', 'mammal'])], after: 'bat'},
    finds: ['cat', 'dog', 'fly'],
  },
  {name: 'find equal text', query: {where: [by('kind', '==', 'insect')]}, finds: ['ant', 'fly']},
  {
    name: 'find equal numbers, and no text with the same digits',
    query: {where: [by('legs', '==', 6)]},
    finds: ['ant'],
  },
  {name: 'find 4 and 4.0 alike', query: {where: [by('legs', '==', 4)]}, finds: ['cat', 'dog']},
  {name: 'find null, and no missing field', query: {where: [by('legs', '==', null)]}, finds: ['hen']},
  {name: 'find true, and no 1', query: {where: [by('legs', '==', true)]}, finds: ['gnu']},
  {
    name: 'find a number with more digits than its text',
    query: {where: [by('weight', '==', 2 ** 62 + 2 ** 10)]},
    finds: ['gnu'],
  },
  {name: 'find nothing', query: {where: [by('name', '==', 'ANT')]}, finds: []},
  {
    name: 'find any of several values',
    query: {where: [by('legs', 'in', [0, '6', true])]},
    finds: ['eel', 'fly', 'gnu'],
  },
  {name: 'find a value that is named twice once', query: {where: [by('legs', 'in', [0, 0])]}, finds: ['eel']},
  {
    name: 'compare numbers only with numbers, in the order of ids',
    query: {where: [by('legs', '>=', 2)]},
    finds: ['ant', 'bat', 'cat', 'dog'],
  },
  {
    name: 'use both ends of a range',
    query: {where: [by('legs', '>', 0), by('legs', '<', 6)]},
    finds: ['bat', 'cat', 'dog'],
  },
  {name: 'compare text by code points', query: {where: [by('name', '>', 'eel')]}, finds: ['fly', 'gnu']},
  {name: 'compare text only with text', query: {where: [by('legs', '<', '7')]}, finds: ['fly']},
  {name: 'compare booleans', query: {where: [by('legs', '>', false)]}, finds: ['gnu']},
  {
    name: 'compare instants, and match neither null nor a missing field',
    query: {where: [by('seen_at', '<', '2026-01-02T00:00:00.000Z')]},
    finds: ['ant', 'dog'],
  },
  {
    name: 'find an instant',
    query: {where: [by('seen_at', '==', '2025-12-31T23:59:59.999Z')]},
    finds: ['dog'],
  },
  {
    name: 'find a field of a map, and not of a list of maps',
    query: {where: [by('home.zone', '==', 'a')]},
    finds: ['ant'],
  },
  {
    name: 'join conditions with and',
    query: {where: [by('kind', '==', 'mammal'), by('legs', '>', 2)]},
    finds: ['cat', 'dog'],
  },
  {
    name: 'order by a field: null, booleans, numbers, text, without documents that lack it',
    query: {order_by: {field: 'legs'}},
    finds: ['hen', 'gnu', 'eel', 'bat', 'cat', 'dog', 'ant', 'fly'],
  },
  {
    name: 'order downwards, with ids downwards too',
    query: {order_by: {field: 'legs', direction: 'desc'}},
    finds: ['fly', 'ant', 'dog', 'cat', 'bat', 'eel', 'gnu', 'hen'],
  },
  {
    name: 'order instants',
    query: {order_by: {field: 'seen_at', direction: 'desc'}, limit: 2},
    finds: ['bat', 'ant'],
  },
  {
    name: 'order text by code points',
    query: {order_by: {field: 'name', direction: 'desc'}, limit: 3},
    finds: ['fly', 'gnu', 'eel'],
  },
  {
    name: 'order by the field of a range',
    query: {where: [by('legs', '<', 6)], order_by: {field: 'legs', direction: 'desc'}, limit: 3},
    finds: ['dog', 'cat', 'bat'],
  },
  {
    name: 'order the documents of an equality',
    query: {where: [by('kind', '==', 'mammal')], order_by: {field: 'legs'}},
    finds: ['bat', 'cat', 'dog'],
  },
  {
    name: 'order by a field that is compared for equality',
    query: {where: [by('kind', '==', 'insect')], order_by: {field: 'kind'}},
    finds: ['ant', 'fly'],
  },
  {
    name: 'order the documents with any of several values',
    query: {where: [by('kind', 'in', ['insect', 'mammal'])], order_by: {field: 'name'}, limit: 3},
    finds: ['ant', 'bat', 'cat'],
  },
];

export function answersQueries(stores: Stores): void {
  describe('queries', () => {
    beforeEach(() => stores.put(ZOO));

    for (const {name, query, finds} of QUERIES)
      it(`a query can ${name}`, async () => {
        const found = await stores.there.query('zoo', query);
        assert.deepEqual(
          found.map(({id}) => id),
          finds,
        );
        for (const {id, path, data} of found) {
          assert.equal(path, `zoo/${id}`);
          assert.deepEqual(data, ZOO[path]);
        }
        if (!query.order_by && !query.limit && !query.after)
          assert.equal(await stores.there.count('zoo', query.where), finds.length);
      });
  });

  it('a sum adds the numbers of a field, or of a field of a map, and nothing else', async () => {
    await stores.put(ZOO);
    await stores.put({'zoo/owl': {legs: 2.5, home: {rooms: 3}}, 'zoo/owl/nests/n': {legs: 1000}});
    const {legs, ...others} = await stores.there.sum('zoo', ['legs', 'home.rooms', 'name', 'tail']);
    assert.equal(legs, 6 + 2 + 4 + 4 + 0 + 2.5);
    assert.deepEqual(others, {'home.rooms': 3, name: 0, tail: 0});
    assert.deepEqual(await stores.there.sum('empty', ['legs']), {legs: 0});
    await assert.rejects(stores.here.sum('zoo', []), TypeError);
    await assert.rejects(stores.here.sum('zoo', ["legs'"]), TypeError);
  });
}
