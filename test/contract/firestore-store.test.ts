/** The contract of the Store on Firestore, and promises beyond the contract: stored values and lost answers. */
import assert from 'node:assert/strict';
import {Firestore, GeoPoint, Timestamp} from '@google-cloud/firestore';
import {openFirestoreStore} from '../../shared/google/firestore-store.ts';
import type {Store, Transaction} from '../../shared/ports/ports.ts';
import {VALID} from './document-cases.ts';
import {describeOnEmulator} from './emulators.ts';
import {startLossyProxy} from './lost-answers.ts';
import {keepsTheContract} from './store-contract.ts';

describeOnEmulator('firestore', 'Store: Firestore', host => {
  describe('keeps the contract', () => {
    let databases = 0;
    keepsTheContract(
      () => {
        process.env.FIRESTORE_EMULATOR_HOST = host();
        databases++;
        const open = (): Store => openFirestoreStore({project: `contract-${databases}`, database: 'gleaner'});
        return [open(), open()];
      },
      {increments: 6, stories: Number(process.env.GLEANER_STORIES ?? 4)},
    );
    after(() => {
      delete process.env.FIRESTORE_EMULATOR_HOST;
    });
  });

  let projects = 0;
  let open: {close(): Promise<void>}[] = [];

  afterEach(async () => {
    await Promise.all(open.map(one => one.close()));
    open = [];
  });

  function connect(at = host()): Firestore {
    return new Firestore({projectId: `firestore-${projects}`, host: at, ssl: false});
  }

  /** A client of Google's and a store on the same new database. */
  function openBoth({attempts = 5, at = host()} = {}): {firestore: Firestore; store: Store} {
    projects++;
    const firestore = connect();
    const store = openFirestoreStore({client: connect(at), attempts});
    open.push(store, {close: () => firestore.terminate()});
    return {firestore, store};
  }

  for (const {name, path = 'runs/r', data} of VALID)
    it(`Firestore accepts a document with ${name}`, async () => {
      // Instants stay text here: another test checks their conversion.
      const firestore = connect();
      open.push({close: () => firestore.terminate()});
      await firestore.doc(path).set(JSON.parse(JSON.stringify(data)));
    });

  it('instants are stored as timestamps at any depth, and other text is not', async () => {
    const {firestore, store} = openBoth();
    const instant = '2026-01-02T03:04:05.678Z';
    await store.transaction(async tx =>
      tx.set('runs/r', {
        made_at: instant,
        note: instant,
        lease: {expires_at: instant},
        list: [{seen_at: instant}],
      }),
    );
    const time = Timestamp.fromMillis(Date.parse(instant));
    assert.deepEqual((await firestore.doc('runs/r').get()).data(), {
      made_at: time,
      note: instant,
      lease: {expires_at: time},
      list: [{seen_at: time}],
    });
  });

  it('foreign values in a document are read as the closest JSON', async () => {
    const {firestore, store} = openBoth();
    await firestore.doc('jobs/j').set({
      made_at: new Timestamp(1_767_323_045, 678_999_999),
      ended_at: 'tomorrow',
      when: Timestamp.fromMillis(0),
      bytes: Buffer.from('abc'),
      place: new GeoPoint(1, 2),
      other: firestore.doc('runs/r'),
      nothing: Number.NaN,
      endless: Number.NEGATIVE_INFINITY,
      map: {list: [new GeoPoint(3, 4)]},
    });
    const expected = {
      made_at: '2026-01-02T03:04:05.678Z',
      ended_at: 'tomorrow',
      when: '1970-01-01T00:00:00.000Z',
      bytes: 'YWJj',
      place: {latitude: 1, longitude: 2},
      other: 'runs/r',
      nothing: 'NaN',
      endless: '-Infinity',
      map: {list: [{latitude: 3, longitude: 4}]},
    };
    assert.deepEqual(await store.get('jobs/j'), expected);
    assert.deepEqual(
      (await store.query('jobs')).map(({data}) => data),
      [expected],
    );
    const rewriting = store.transaction(async tx => tx.set('jobs/j', (await tx.get('jobs/j')) ?? {}));
    await assert.rejects(rewriting, {name: 'InvalidDocument', message: /jobs\/j.*ended_at/});
  });

  it('a transaction fails with Contention when a document is locked for too long', async () => {
    const {store} = openBoth({attempts: 1});
    const {promise: released, resolve: release} = Promise.withResolvers<void>();
    const {promise: held, resolve: hold} = Promise.withResolvers<void>();
    const holding = store.transaction(async tx => {
      await tx.get('runs/r');
      hold();
      await released;
    });
    await held;
    const losing = store.transaction(async tx => {
      await tx.get('runs/r');
      tx.set('runs/r', {n: 1});
    });
    await assert.rejects(losing, {name: 'Contention', message: /other writers won every attempt/});
    release();
    await holding;
  });

  it('a change with a marker is applied once after a lost answer to its commit', async () => {
    const proxy = await startLossyProxy(host());
    const {store} = openBoth({at: proxy.host});
    const change = async (tx: Transaction): Promise<void> => {
      const counter = await tx.get('counters/c');
      tx.create('markers/m', {});
      tx.set('counters/c', {n: Number(counter?.n ?? 0) + 1});
    };
    try {
      proxy.loseAnswerTo('/Commit');
      const first = await store.transaction(change).catch((error: Error) => error);
      assert.equal(proxy.lost(), 1);
      assert.deepEqual(await store.get('counters/c'), {n: 1}, `written, with the answer: ${first}`);
      if (first instanceof Error) assert.match(first.message, /the writes may have happened|already there/);
      await assert.rejects(store.transaction(change), {name: 'AlreadyExists'});
      assert.deepEqual(await store.get('counters/c'), {n: 1});
    } finally {
      await store.close();
      await proxy.stop();
    }
  });
});
