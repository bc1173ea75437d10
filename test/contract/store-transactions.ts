/** Contract of the Store for transactions. */
import assert from 'node:assert/strict';
import type {Store, Transaction} from '../../shared/ports/ports.ts';
import type {Effort, Stores} from './store-handles.ts';

export function commitsTransactions(stores: Stores): void {
  it('a transaction returns the result of its work', async () => {
    assert.equal(await stores.here.transaction(async () => 7), 7);
  });

  it('a document is created once', async () => {
    const change = async (tx: Transaction): Promise<void> => {
      tx.create('markers/m', {by: 'us'});
      tx.set('runs/r', {status: 'active'});
    };
    await stores.here.transaction(change);
    await stores.here.transaction(async tx => tx.set('runs/r', {status: 'paused'}));
    await assert.rejects(stores.there.transaction(change), {name: 'AlreadyExists', message: /markers\/m/});
    assert.deepEqual(await stores.there.get('runs/r'), {status: 'paused'});
  });

  it('a transaction may write a document several times, in order', async () => {
    await stores.put({'runs/a': {n: 0}});
    await stores.here.transaction(async tx => {
      tx.delete('runs/a');
      tx.create('runs/a', {n: 1});
      tx.set('runs/a', {n: 2});
      tx.create('runs/b', {n: 3});
      tx.delete('runs/b');
    });
    assert.deepEqual(await stores.here.query('runs'), [{path: 'runs/a', id: 'a', data: {n: 2}}]);
    const twice = stores.here.transaction(async tx => {
      tx.set('runs/c', {n: 1});
      tx.create('runs/c', {n: 2});
    });
    await assert.rejects(twice, {name: 'AlreadyExists', message: /runs\/c/});
    assert.equal(await stores.here.get('runs/c'), undefined);
  });

  it('a transaction writes nothing when its work throws, and throws that very error', async () => {
    // After code 10 Firestore's client would run the work again.
    const error = Object.assign(new Error('no'), {code: 10});
    let runs = 0;
    const failing = stores.here.transaction(async tx => {
      runs++;
      await tx.get('runs/r');
      tx.set('runs/r', {n: 1});
      throw error;
    });
    await assert.rejects(failing, thrown => thrown === error);
    assert.equal(runs, 1);
    assert.equal(await stores.here.get('runs/r'), undefined);
  });

  it('a read after a write is refused', async () => {
    const late = stores.here.transaction(async tx => {
      tx.set('runs/a', {n: 1});
      await tx.get('runs/b');
    });
    await assert.rejects(late, {name: 'ReadAfterWrite', message: /runs\/b/});
    assert.equal(await stores.here.get('runs/a'), undefined);
  });

  it('a transaction is unusable after its work has returned', async () => {
    let kept: Transaction | undefined;
    await stores.here.transaction(async tx => {
      kept = tx;
    });
    assert.throws(() => kept?.set('runs/r', {n: 1}), /over/);
    await assert.rejects(async () => kept?.get('runs/r'), /over/);
  });

  it('two reads of a document in a transaction are equal', async () => {
    await stores.put({'runs/r': {n: 1}});
    const [first, second] = await stores.here.transaction(async tx => [
      await tx.get('runs/r'),
      await tx.get('runs/r'),
    ]);
    assert.deepEqual([first, second], [{n: 1}, {n: 1}]);
  });
}

/** Transactions that run at the same time have the result of some order. */
export function isolatesTransactions(stores: Stores, effort: Effort): void {
  it(`${effort.increments} concurrent increments are all counted`, async () => {
    await stores.put({'counters/c': {n: 0}});
    const increment = (store: Store): Promise<void> =>
      store.transaction(async tx => {
        const counter = await tx.get('counters/c');
        tx.set('counters/c', {n: Number(counter?.n) + 1});
      });
    await Promise.all(
      Array.from({length: effort.increments}, (_, n) => increment(n % 2 ? stores.here : stores.there)),
    );
    assert.deepEqual(await stores.here.get('counters/c'), {n: effort.increments});
  });

  it('only one of many transactions creates a document', async () => {
    const attempts = Array.from({length: 8}, (_, n) =>
      (n % 2 ? stores.here : stores.there).transaction(async tx => tx.create('markers/m', {n})),
    );
    const settled = await Promise.allSettled(attempts);
    const names = settled.map(one => (one.status === 'rejected' ? one.reason.name : 'created'));
    assert.deepEqual(names.sort(), [...Array(7).fill('AlreadyExists'), 'created']);
  });

  it('a transaction runs again when a document that it only read has changed', async () => {
    await stores.put({'doctors/a': {on_call: true}, 'doctors/b': {on_call: true}});
    const bothHaveRead = barrier(2);
    // A doctor may leave only while the other stays: as both read first, one transaction must run again.
    const leave = (store: Store, id: string): Promise<void> =>
      store.transaction(async tx => {
        const [a, b] = [await tx.get('doctors/a'), await tx.get('doctors/b')];
        await bothHaveRead();
        if (a?.on_call && b?.on_call) tx.set(`doctors/${id}`, {on_call: false});
      });
    await Promise.all([leave(stores.here, 'a'), leave(stores.there, 'b')]);
    assert.equal(await stores.here.count('doctors', [{field: 'on_call', op: '==', value: true}]), 1);
  });

  it('a transaction runs again when a missing document was created', async () => {
    const bothHaveRead = barrier(2);
    const claim = (store: Store, who: string): Promise<void> =>
      store.transaction(async tx => {
        const taken = await tx.get('claims/c');
        await bothHaveRead();
        if (!taken) tx.set('claims/c', {who});
        else tx.set(`losers/${who}`, {});
      });
    await Promise.all([claim(stores.here, 'us'), claim(stores.there, 'them')]);
    const winner = (await stores.here.get('claims/c'))?.who;
    const ids = (await stores.here.query('losers')).map(({id}) => id);
    assert.deepEqual(ids, [winner === 'us' ? 'them' : 'us']);
  });
}

/** Makes the first visit of each party wait until all parties have come. Later visits pass. */
function barrier(parties: number): () => Promise<void> {
  const {promise, resolve} = Promise.withResolvers<void>();
  let arrived = 0;
  return () => {
    if (++arrived >= parties) resolve();
    return promise;
  };
}
