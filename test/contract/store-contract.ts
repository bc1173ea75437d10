/** What every Store does: the contract in `ports.ts`, as tests. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import type {Document, Filter, Query, Store, Transaction} from '../../shared/ports.ts';
import {ModelStore, runOn, story} from './store-model.ts';

/** Two handles on one empty store, which may be the same one. */
export type Handles = [Store, Store];

/** How hard to try: Google's emulator gives up a contended lock only after two seconds. */
export type Effort = {increments: number; stories: number; wait_ms: number};

const HOSTILE_IDS = [
  ' ',
  '007',
  '7',
  "'; drop table documents; --",
  '"',
  '%',
  '_',
  '?',
  'line\nbreak',
  'nul\0nul',
  '\u{1f600}',
  'é',
  '__proto',
  'constructor',
  '\uffff',
  'x'.repeat(1500),
];

const HOSTILE_DOCUMENTS: {name: string; data: Document}[] = [
  {name: 'an empty document', data: {}},
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
    name: 'give everything in the order of ids',
    query: {},
    finds: ['ant', 'bat', 'cat', 'dog', 'eel', 'fly', 'gnu', 'hen', 'jay'],
  },
  {name: 'stop at the limit', query: {limit: 2}, finds: ['ant', 'bat']},
  {name: 'go on after an id', query: {after: 'eel'}, finds: ['fly', 'gnu', 'hen', 'jay']},
  {
    name: 'go on after an id that is not there, as far as the limit',
    query: {after: 'coot', limit: 2},
    finds: ['dog', 'eel'],
  },
  {
    name: 'go on after an id among those chosen',
    query: {where: [by('kind', 'in', ['insect', 'mammal'])], after: 'bat'},
    finds: ['cat', 'dog', 'fly'],
  },
  {name: 'find equal text', query: {where: [by('kind', '==', 'insect')]}, finds: ['ant', 'fly']},
  {
    name: 'find equal numbers, but not the text that reads like one',
    query: {where: [by('legs', '==', 6)]},
    finds: ['ant'],
  },
  {name: 'find 4 and 4.0 alike', query: {where: [by('legs', '==', 4)]}, finds: ['cat', 'dog']},
  {
    name: 'find null where it stands, not where the field is missing',
    query: {where: [by('legs', '==', null)]},
    finds: ['hen'],
  },
  {name: 'find true but not 1', query: {where: [by('legs', '==', true)]}, finds: ['gnu']},
  {
    name: 'find a number that is printed with fewer digits than it has',
    query: {where: [by('weight', '==', 2 ** 62 + 2 ** 10)]},
    finds: ['gnu'],
  },
  {name: 'find nothing equal', query: {where: [by('name', '==', 'ANT')]}, finds: []},
  {
    name: 'find any of several',
    query: {where: [by('legs', 'in', [0, '6', true])]},
    finds: ['eel', 'fly', 'gnu'],
  },
  {name: 'find one value named twice only once', query: {where: [by('legs', 'in', [0, 0])]}, finds: ['eel']},
  {
    name: 'compare numbers with numbers only, in the order of ids',
    query: {where: [by('legs', '>=', 2)]},
    finds: ['ant', 'bat', 'cat', 'dog'],
  },
  {
    name: 'take both ends of a range',
    query: {where: [by('legs', '>', 0), by('legs', '<', 6)]},
    finds: ['bat', 'cat', 'dog'],
  },
  {name: 'compare text by code points', query: {where: [by('name', '>', 'eel')]}, finds: ['fly', 'gnu']},
  {name: 'compare text with text only', query: {where: [by('legs', '<', '7')]}, finds: ['fly']},
  {name: 'compare booleans', query: {where: [by('legs', '>', false)]}, finds: ['gnu']},
  {
    name: 'compare instants, and never match a missing or null one',
    query: {where: [by('seen_at', '<', '2026-01-02T00:00:00.000Z')]},
    finds: ['ant', 'dog'],
  },
  {
    name: 'find an instant',
    query: {where: [by('seen_at', '==', '2025-12-31T23:59:59.999Z')]},
    finds: ['dog'],
  },
  {
    name: 'find a field of a map, but not of a list of maps',
    query: {where: [by('home.zone', '==', 'a')]},
    finds: ['ant'],
  },
  {
    name: 'join conditions with and',
    query: {where: [by('kind', '==', 'mammal'), by('legs', '>', 2)]},
    finds: ['cat', 'dog'],
  },
  {
    name: 'order by a field with null first, then booleans, numbers, text, and without those that lack it',
    query: {order_by: {field: 'legs'}},
    finds: ['hen', 'gnu', 'eel', 'bat', 'cat', 'dog', 'ant', 'fly'],
  },
  {
    name: 'turn the ids around as well when they order downwards',
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
    name: 'order what an equality has chosen',
    query: {where: [by('kind', '==', 'mammal')], order_by: {field: 'legs'}},
    finds: ['bat', 'cat', 'dog'],
  },
  {
    name: 'order by a field that is compared for equality',
    query: {where: [by('kind', '==', 'insect')], order_by: {field: 'kind'}},
    finds: ['ant', 'fly'],
  },
  {
    name: 'order what any of several has chosen',
    query: {where: [by('kind', 'in', ['insect', 'mammal'])], order_by: {field: 'name'}, limit: 3},
    finds: ['ant', 'bat', 'cat'],
  },
];

export function keepsTheContract(open: () => Handles, effort: Effort): void {
  let here: Store;
  let there: Store;

  beforeEach(function () {
    this.timeout(effort.wait_ms);
    [here, there] = open();
  });

  afterEach(async () => {
    await here.close();
    await there.close();
  });

  async function put(documents: Record<string, Document>): Promise<void> {
    await here.transaction(async tx => {
      for (const [path, data] of Object.entries(documents)) tx.set(path, data);
    });
  }

  describe('documents', () => {
    it('shows a committed document to everyone at once, and a replaced one without its old fields', async () => {
      await here.transaction(async tx => tx.create('runs/r', {status: 'active', old: 1}));
      assert.deepEqual(await there.get('runs/r'), {status: 'active', old: 1});
      await there.transaction(async tx => tx.set('runs/r', {status: 'paused'}));
      assert.deepEqual(await here.get('runs/r'), {status: 'paused'});
      await here.transaction(async tx => tx.delete('runs/r'));
      assert.equal(await there.get('runs/r'), undefined);
    });

    it('keeps a document apart from its own collections and from its namesakes elsewhere', async () => {
      await put({'runs/r': {n: 1}, 'runs/r/streams/r': {n: 2}, 'jobs/r': {n: 3}});
      await here.transaction(async tx => tx.delete('runs/r'));
      assert.deepEqual(await here.get('runs/r/streams/r'), {n: 2});
      assert.deepEqual(
        (await here.query('runs/r/streams')).map(({path, id}) => ({path, id})),
        [{path: 'runs/r/streams/r', id: 'r'}],
      );
      assert.deepEqual(await here.query('runs'), []);
    });

    it('deletes what is not there without complaint', async () => {
      await here.transaction(async tx => tx.delete('runs/nothing'));
    });

    it('takes documents as they are at the call, and gives each reader a copy', async () => {
      const data = {list: [1], map: {n: 1}};
      await here.transaction(async tx => {
        tx.set('runs/r', data);
        data.list.push(2);
        data.map.n = 2;
      });
      const read = (await here.get('runs/r')) as typeof data;
      read.list.push(3);
      assert.deepEqual(await here.get('runs/r'), {list: [1], map: {n: 1}});
    });

    for (const {name, data} of HOSTILE_DOCUMENTS)
      it(`gives back ${name} as it was`, async () => {
        await put({'runs/r': data});
        assert.deepEqual(await there.get('runs/r'), data);
        assert.deepEqual(
          (await there.query('runs')).map(stored => stored.data),
          [data],
        );
      });

    for (const id of HOSTILE_IDS)
      it(`keeps the id ${JSON.stringify(id).slice(0, 20)}`, async () => {
        await put({[`runs/${id}`]: {n: 1}, 'runs/other': {n: 2}});
        assert.deepEqual(await there.get(`runs/${id}`), {n: 1});
        assert.deepEqual(await there.query('runs', {where: [{field: 'n', op: '==', value: 1}]}), [
          {path: `runs/${id}`, id, data: {n: 1}},
        ]);
      });

    it('has no -0, as JSON has none', async () => {
      await put({'runs/r': {n: -0, list: [-0]}});
      assert.deepEqual(await there.get('runs/r'), {n: 0, list: [0]});
    });

    it('refuses an invalid document before it writes anything', async () => {
      const refused = here.transaction(async tx => {
        tx.set('runs/a', {n: 1});
        tx.set('runs/b', {lease: {expires_at: 'tomorrow'}});
      });
      await assert.rejects(refused, {name: 'InvalidDocument', message: /runs\/b.*lease\.expires_at/});
      assert.deepEqual(await here.query('runs'), []);
    });

    it('refuses a path that names no document, or no collection', async () => {
      await assert.rejects(here.get('runs'), {name: 'InvalidDocument'});
      await assert.rejects(here.get('runs//r/x'), {name: 'InvalidDocument'});
      await assert.rejects(here.query('runs/r'), {name: 'InvalidDocument'});
      const writing = here.transaction(async tx => tx.delete('runs/../jobs/j'));
      await assert.rejects(writing, {name: 'InvalidDocument'});
    });

    it('refuses a query that only some databases could answer', async () => {
      await assert.rejects(here.query('runs', {where: [{field: 'a', op: 'in', value: []}]}), TypeError);
      await assert.rejects(here.count('runs', [{field: 'a', op: '==', value: [1]}]), TypeError);
    });
  });

  describe('transactions', () => {
    it('answer with what the work answered', async () => {
      assert.equal(await here.transaction(async () => 7), 7);
    });

    it('create a document once', async () => {
      const change = async (tx: Transaction): Promise<void> => {
        tx.create('markers/m', {by: 'us'});
        tx.set('runs/r', {status: 'active'});
      };
      await here.transaction(change);
      await here.transaction(async tx => tx.set('runs/r', {status: 'paused'}));
      await assert.rejects(there.transaction(change), {name: 'AlreadyExists', message: /markers\/m/});
      assert.deepEqual(await there.get('runs/r'), {status: 'paused'});
    });

    it('let only one of many create a document', async () => {
      const attempts = Array.from({length: 8}, (_, n) =>
        (n % 2 ? here : there).transaction(async tx => tx.create('markers/m', {n})),
      );
      const settled = await Promise.allSettled(attempts);
      const names = settled.map(one => (one.status === 'rejected' ? one.reason.name : 'created'));
      assert.deepEqual(names.sort(), [...Array(7).fill('AlreadyExists'), 'created']);
    }).timeout(effort.wait_ms);

    it('write a document several times, in order', async () => {
      await put({'runs/a': {n: 0}});
      await here.transaction(async tx => {
        tx.delete('runs/a');
        tx.create('runs/a', {n: 1});
        tx.set('runs/a', {n: 2});
        tx.create('runs/b', {n: 3});
        tx.delete('runs/b');
      });
      assert.deepEqual(await here.query('runs'), [{path: 'runs/a', id: 'a', data: {n: 2}}]);
      const twice = here.transaction(async tx => {
        tx.set('runs/c', {n: 1});
        tx.create('runs/c', {n: 2});
      });
      await assert.rejects(twice, {name: 'AlreadyExists', message: /runs\/c/});
      assert.equal(await here.get('runs/c'), undefined);
    });

    it('write nothing when the work throws, and pass on that very error', async () => {
      // Code 10 is what Firestore's client would take for a reason to run the work again.
      const error = Object.assign(new Error('no'), {code: 10});
      let runs = 0;
      const failing = here.transaction(async tx => {
        runs++;
        await tx.get('runs/r');
        tx.set('runs/r', {n: 1});
        throw error;
      });
      await assert.rejects(failing, thrown => thrown === error);
      assert.equal(runs, 1);
      assert.equal(await here.get('runs/r'), undefined);
    });

    it('refuse to read after they have written', async () => {
      const late = here.transaction(async tx => {
        tx.set('runs/a', {n: 1});
        await tx.get('runs/b');
      });
      await assert.rejects(late, {name: 'ReadAfterWrite', message: /runs\/b/});
      assert.equal(await here.get('runs/a'), undefined);
    });

    it('are of no use once their work has returned', async () => {
      let kept: Transaction | undefined;
      await here.transaction(async tx => {
        kept = tx;
      });
      assert.throws(() => kept?.set('runs/r', {n: 1}), /over/);
      await assert.rejects(async () => kept?.get('runs/r'), /over/);
    });

    it('read one document twice and see the same', async () => {
      await put({'runs/r': {n: 1}});
      const [first, second] = await here.transaction(async tx => [
        await tx.get('runs/r'),
        await tx.get('runs/r'),
      ]);
      assert.deepEqual([first, second], [{n: 1}, {n: 1}]);
    });

    it(`lose none of ${effort.increments} increments made at once`, async () => {
      await put({'counters/c': {n: 0}});
      const increment = (store: Store): Promise<void> =>
        store.transaction(async tx => {
          const counter = await tx.get('counters/c');
          tx.set('counters/c', {n: Number(counter?.n) + 1});
        });
      await Promise.all(Array.from({length: effort.increments}, (_, n) => increment(n % 2 ? here : there)));
      assert.deepEqual(await here.get('counters/c'), {n: effort.increments});
    }).timeout(effort.wait_ms);

    it('do not act on a document that somebody else has changed meanwhile, though they write only another', async () => {
      await put({'doctors/a': {on_call: true}, 'doctors/b': {on_call: true}});
      const bothHaveRead = barrier(2);
      // Each may leave only while the other stays: with both reading first, one has to run again.
      const leave = (store: Store, id: string): Promise<void> =>
        store.transaction(async tx => {
          const [a, b] = [await tx.get('doctors/a'), await tx.get('doctors/b')];
          await bothHaveRead();
          if (a?.on_call && b?.on_call) tx.set(`doctors/${id}`, {on_call: false});
        });
      await Promise.all([leave(here, 'a'), leave(there, 'b')]);
      assert.equal(await here.count('doctors', [{field: 'on_call', op: '==', value: true}]), 1);
    }).timeout(effort.wait_ms);

    it('notice that a document which was missing has come', async () => {
      const bothHaveRead = barrier(2);
      const claim = (store: Store, who: string): Promise<void> =>
        store.transaction(async tx => {
          const taken = await tx.get('claims/c');
          await bothHaveRead();
          if (!taken) tx.set('claims/c', {who});
          else tx.set(`losers/${who}`, {});
        });
      await Promise.all([claim(here, 'us'), claim(there, 'them')]);
      const winner = (await here.get('claims/c'))?.who;
      assert.deepEqual(
        (await here.query('losers')).map(({id}) => id),
        [winner === 'us' ? 'them' : 'us'],
      );
    }).timeout(effort.wait_ms);
  });

  describe('queries', () => {
    beforeEach(() => put(ZOO));

    for (const {name, query, finds} of QUERIES)
      it(name, async () => {
        const found = await there.query('zoo', query);
        assert.deepEqual(
          found.map(({id}) => id),
          finds,
        );
        for (const {id, path, data} of found) {
          assert.equal(path, `zoo/${id}`);
          assert.deepEqual(data, ZOO[path]);
        }
        if (!query.order_by && !query.limit && !query.after)
          assert.equal(await there.count('zoo', query.where), finds.length);
      });
  });

  it('adds up the numbers of a field, and of a field of a map, and nothing else', async () => {
    await put(ZOO);
    await put({'zoo/owl': {legs: 2.5, home: {rooms: 3}}, 'zoo/owl/nests/n': {legs: 1000}});
    const {legs, ...others} = await there.sum('zoo', ['legs', 'home.rooms', 'name', 'tail']);
    assert.equal(legs, 6 + 2 + 4 + 4 + 0 + 2.5);
    assert.deepEqual(others, {'home.rooms': 3, name: 0, tail: 0});
    assert.deepEqual(await there.sum('nobody', ['legs']), {legs: 0});
    await assert.rejects(here.sum('zoo', []), TypeError);
    await assert.rejects(here.sum('zoo', ["legs'"]), TypeError);
  });

  it('does what a Map would do, whatever is asked', async () => {
    await fc.assert(
      fc.asyncProperty(story, async steps => {
        const [store, other] = open();
        try {
          const model = new ModelStore();
          for (const [n, step] of steps.entries())
            assert.deepEqual(await runOn(n % 2 ? store : other, step), model.run(step));
        } finally {
          await store.close();
          await other.close();
        }
      }),
      {numRuns: effort.stories},
    );
  }).timeout(effort.wait_ms * 4);
}

/** Everyone's first visit waits until all have come; later visits pass. */
function barrier(parties: number): () => Promise<void> {
  const {promise, resolve} = Promise.withResolvers<void>();
  let arrived = 0;
  return () => {
    if (++arrived >= parties) resolve();
    return promise;
  };
}
