/** Reads of the pages: documents once, then their changes, within the allowance, and the last known state. */
import assert from 'node:assert/strict';
import {mock} from 'node:test';
import {Allowance} from '../../../dashboard/billed-objects.ts';
import {Feed} from '../../../dashboard/html/feed.ts';
import {MirrorStore} from '../../../dashboard/mirror-store.ts';
import {UNIT_PRICES} from '../../../shared/domain/billing/unit-prices.ts';
import type {Store} from '../../../shared/ports/ports.ts';
import {somePages} from '../../support/machine/dashboard.ts';
import {aRun, at, aWorker, T0} from '../../world/builders.ts';
import {aStore, putDocuments} from '../../world/scenes/put-documents.ts';

const names = Array.from({length: 100}, (_, slot) => `tpu-us-central1-a-${slot}`);

function workersAt(seconds: number, changes = {}): Record<string, object> {
  const times = {updated_at: at(seconds), phase_since_at: at(seconds)};
  return Object.fromEntries(
    names.map(name => [`workers/${name}`, aWorker({name, phase: 'idle', ...times, ...changes})]),
  );
}

describe('The mirror of a store', () => {
  it('the mirror of a store reads a collection once, and then what has changed, by the clock of the cloud', async () => {
    const store = await aStore(workersAt(0));
    // The clock of this machine is a day behind that of the cloud.
    let [now, reads] = [T0 - 86_400_000, 0];
    const spend = (count: number) => {
      reads += count;
    };
    const options = {now: () => now, spend, whole_ms_each: 1e9, jobs: 'jobs', seldom_ms: 0};
    const mirror = new MirrorStore(store, options);
    const phases = async () => (await mirror.query('workers')).map(({data}) => data.phase);
    const idle = async () =>
      (await mirror.query('workers', {where: [{field: 'phase', op: '==', value: 'idle'}]})).length;
    await phases();
    assert.ok(reads <= 102, `${reads}`);
    now += 60_000;
    await phases();
    await phases();
    now += 60_000;
    await phases();
    assert.ok(reads <= 100 + 2 * 200, `${reads}`);
    reads = 0;
    await putDocuments(store, {
      [`workers/${names[7]}`]: aWorker({name: names[7] ?? '', phase: 'deleting', updated_at: at(121)}),
    });
    now += 2000;
    assert.equal((await phases()).filter(phase => phase === 'deleting').length, 1);
    assert.ok(reads <= 3, `${reads} reads for one change`);
    assert.equal(await idle(), 99);
    await putDocuments(store, {
      [`workers/${names[8]}`]: aWorker({name: names[8] ?? '', phase: 'gone', updated_at: at(130)}),
    });
    now += 10_000;
    reads = 0;
    assert.equal(await idle(), 98);
    assert.ok(reads <= 4, `${reads} reads for one document that leaves a query`);
    await store.close();
  });

  it('the mirror of a store gives a document that has not changed as the same object, so that it is parsed once', async () => {
    const store = await aStore({'runs/my-run': aRun()});
    let now = T0;
    const mirror = new MirrorStore(store, {
      now: () => now,
      spend: () => {},
      whole_ms_each: 0,
      jobs: 'jobs',
      seldom_ms: 0,
    });
    const [first] = await mirror.query('runs');
    now += 10_000;
    const [second] = await mirror.query('runs');
    assert.equal(first?.data, second?.data);
    await store.close();
  });
});

describe('The allowance of reads', () => {
  it('the allowance of reads lets no open page cost more than a dollar a month and the dollars of a day', () => {
    let now = 0;
    const allowance = new Allowance(() => now);
    let spent = 0;
    const month_ms = 30 * 86_400_000;
    while (now < month_ms) {
      allowance.spend('firestore_read', 900);
      spent += 900 * UNIT_PRICES.firestore_read;
      now += Math.max(5000, allowance.waitMs());
    }
    assert.ok(spent > 0.9 && spent < 1.05, `$${spent}`);
  });
});

describe('A page that is polled', () => {
  it('a page that is polled is read once for any number of readers, and shows its last state with its age while the database is away', async () => {
    let [now, reads, isAway] = [T0, 0, false];
    const page = {
      key: '/',
      read: async () => {
        reads++;
        if (isAway) throw new Error('UNAVAILABLE');
        return [{id: 'a', html: `state ${reads}`}];
      },
    };
    const feed = new Feed({now: () => now, interval_ms: 1000, waitMs: () => 0});
    await Promise.all([feed.show(page), feed.show(page), feed.show(page)]);
    assert.equal(reads, 1);
    isAway = true;
    now += 5000;
    const shown = await feed.show(page);
    assert.deepEqual([shown.sections[0]?.html, shown.at_ms, shown.problem], ['state 1', T0, 'UNAVAILABLE']);
    isAway = false;
    now += 5000;
    assert.equal((await feed.show(page)).problem, null);
    feed.close();
  });

  it('a page that is polled is polled together with every other open page', async () => {
    mock.timers.enable({apis: ['setTimeout', 'Date'], now: T0});
    try {
      const reads: string[] = [];
      const feed = new Feed({now: Date.now, interval_ms: 1000, waitMs: () => 0});
      const open = (key: string) =>
        feed.subscribe(
          {key, read: async () => [{id: 'a', html: String(reads.push(`${key} ${Date.now() - T0}`))}]},
          () => {},
        );
      open('a');
      mock.timers.tick(300);
      open('b');
      for (let step = 0; step < 20; step++) {
        mock.timers.tick(100);
        await new Promise(setImmediate);
      }
      assert.deepEqual(reads, ['a 1000', 'b 1000', 'a 2000', 'b 2000']);
      feed.close();
    } finally {
      mock.timers.reset();
    }
  });

  it('a page that is polled is an error and no empty fleet where the database was away from the start', async () => {
    const away = new Proxy({} as Store, {
      get: () => () => Promise.reject(new Error('UNAVAILABLE')),
    });
    const {status, text} = await somePages(away, () => T0).get('/fleet');
    assert.equal(status, 503);
    assert.match(text, /The database does not answer/);
    assert.doesNotMatch(text, /No TPU|no TPU/);
  });
});
