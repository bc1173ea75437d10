/** Contract of the Store for documents. */
import assert from 'node:assert/strict';
import type {Document} from '../../shared/ports/ports.ts';
import type {Stores} from './store-handles.ts';

const HOSTILE_IDS = [
  ...[' ', '007', '7', "'; drop table documents; --", '"', '%', '_', '?', 'line\nbreak', 'nul\0nul'],
  ...['\u{1f600}', 'é', '__proto', 'constructor', '\uffff', 'x'.repeat(1500)],
];

const HOSTILE_DOCUMENTS: {name: string; data: Document}[] = [
  {name: 'no field', data: {}},
  {name: 'empty lists and maps', data: {list: [], map: {}, within: {list: [{}], map: {map: {}}}}},
  {name: 'null, false, 0 and ""', data: {a: null, b: false, c: 0, d: ''}},
  {
    name: 'numbers at their limits',
    data: {a: 2 ** 53 - 1, b: -(2 ** 53) + 1, c: 2 ** 60, d: 5e-324, e: 1.7976931348623157e308, f: 0.1 + 0.2},
  },
  {
    name: 'text of every kind',
    data: {a: 'nul\0nul', b: '\u{1f600}', c: 'e\u0301', d: '\u2028\ufeff', e: '"\\\'`', f: '{"a":1}'},
  },
  {name: 'text that looks like an instant', data: {note: '2026-01-02T03:04:05.678Z'}},
  {
    name: 'instants at any depth',
    data: {
      created_at: '2026-01-02T03:04:05.678Z',
      ended_at: null,
      lease: {expires_at: '0001-01-01T00:00:00.000Z'},
      list: [{seen_at: '9999-12-31T23:59:59.999Z'}],
    },
  },
  {
    name: 'field names of every kind',
    data: {'a.b': 1, 'a b': 2, é: 3, '`': 4, "'": 5, '\u{1f600}': 6, 'a/b': 7, '7': 8},
  },
  {
    name: 'field names that JavaScript knows',
    data: {constructor: 1, toString: 2, hasOwnProperty: 3, __proto: 4},
  },
  {name: 'a list of 10,000 numbers', data: {list: Array.from({length: 10_000}, (_, n) => n)}},
  {name: 'a million letters', data: {text: 'é'.repeat(500_000)}},
];

export function storesDocuments(stores: Stores): void {
  it('every handle sees a committed document at once, and a replaced document without its old fields', async () => {
    await stores.here.transaction(async tx => tx.create('runs/r', {status: 'active', old: 1}));
    assert.deepEqual(await stores.there.get('runs/r'), {status: 'active', old: 1});
    await stores.there.transaction(async tx => tx.set('runs/r', {status: 'paused'}));
    assert.deepEqual(await stores.here.get('runs/r'), {status: 'paused'});
    await stores.here.transaction(async tx => tx.delete('runs/r'));
    assert.equal(await stores.there.get('runs/r'), undefined);
  });

  it('a document is independent of its own collections and of equal ids elsewhere', async () => {
    await stores.put({'runs/r': {n: 1}, 'runs/r/streams/r': {n: 2}, 'jobs/r': {n: 3}});
    await stores.here.transaction(async tx => tx.delete('runs/r'));
    assert.deepEqual(await stores.here.get('runs/r/streams/r'), {n: 2});
    assert.deepEqual(
      (await stores.here.query('runs/r/streams')).map(({path, id}) => ({path, id})),
      [{path: 'runs/r/streams/r', id: 'r'}],
    );
    assert.deepEqual(await stores.here.query('runs'), []);
  });

  it('deleting a missing document does nothing', async () => {
    await stores.here.transaction(async tx => tx.delete('runs/nothing'));
  });

  it('a transaction copies documents at the call, and no reader changes the document of another', async () => {
    const data = {list: [1], map: {n: 1}};
    await stores.here.transaction(async tx => {
      tx.set('runs/r', data);
      data.list.push(2);
      data.map.n = 2;
    });
    const read = (await stores.here.get('runs/r')) as typeof data;
    if (!Object.isFrozen(read.list)) read.list.push(3);
    assert.deepEqual(await stores.here.get('runs/r'), {list: [1], map: {n: 1}});
  });

  for (const {name, data} of HOSTILE_DOCUMENTS)
    it(`a document with ${name} comes back unchanged`, async () => {
      await stores.put({'runs/r': data});
      assert.deepEqual(await stores.there.get('runs/r'), data);
      assert.deepEqual(
        (await stores.there.query('runs')).map(stored => stored.data),
        [data],
      );
    });

  for (const id of HOSTILE_IDS)
    it(`the id ${JSON.stringify(id).slice(0, 20)} is a valid document id`, async () => {
      await stores.put({[`runs/${id}`]: {n: 1}, 'runs/other': {n: 2}});
      assert.deepEqual(await stores.there.get(`runs/${id}`), {n: 1});
      assert.deepEqual(await stores.there.query('runs', {where: [{field: 'n', op: '==', value: 1}]}), [
        {path: `runs/${id}`, id, data: {n: 1}},
      ]);
    });

  it('a stored -0 becomes 0', async () => {
    await stores.put({'runs/r': {n: -0, list: [-0]}});
    assert.deepEqual(await stores.there.get('runs/r'), {n: 0, list: [0]});
  });
}

export function refusesInvalidInput(stores: Stores): void {
  it('an invalid document is refused before any write', async () => {
    const refused = stores.here.transaction(async tx => {
      tx.set('runs/a', {n: 1});
      tx.set('runs/b', {lease: {expires_at: 'tomorrow'}});
    });
    await assert.rejects(refused, {name: 'InvalidDocument', message: /runs\/b.*lease\.expires_at/});
    assert.deepEqual(await stores.here.query('runs'), []);
  });

  it('an invalid path is refused', async () => {
    await assert.rejects(stores.here.get('runs'), {name: 'InvalidDocument'});
    await assert.rejects(stores.here.get('runs//r/x'), {name: 'InvalidDocument'});
    await assert.rejects(stores.here.query('runs/r'), {name: 'InvalidDocument'});
    const writing = stores.here.transaction(async tx => tx.delete('runs/../jobs/j'));
    await assert.rejects(writing, {name: 'InvalidDocument'});
  });

  it('an invalid query is refused', async () => {
    await assert.rejects(stores.here.query('runs', {where: [{field: 'a', op: 'in', value: []}]}), TypeError);
    await assert.rejects(stores.here.count('runs', [{field: 'a', op: '==', value: [1]}]), TypeError);
  });
}
