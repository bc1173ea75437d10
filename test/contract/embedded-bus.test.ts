import assert from 'node:assert/strict';
import {DatabaseSync} from 'node:sqlite';
import {
  type Delivery,
  EmbeddedBus,
  type EmbeddedBusOptions,
  ReceiverAway,
} from '../../emulator/delivery/embedded-bus.ts';
import {Folder} from '../support/machine/folder.ts';
import {until} from '../support/machine/until.ts';

describe('EmbeddedBus', () => {
  const folder = new Folder(after);
  let time = 0;
  let tries: Delivery[];
  let answer: (delivery: Delivery) => Promise<void>;
  const aBus = (options: Partial<EmbeddedBusOptions> = {}) =>
    new EmbeddedBus({
      database: new DatabaseSync(':memory:'),
      deliver: delivery => {
        tries.push(delivery);
        return answer(delivery);
      },
      now: () => time,
      random: () => 0.5,
      ...options,
    });
  const messages = () => tries.map(delivery => delivery.message);
  beforeEach(() => {
    time = 1_000_000;
    tries = [];
    answer = async () => {};
  });

  it('an acknowledged message leaves the bus', async () => {
    const bus = aBus();
    await bus.publish('control', {a: 1});
    assert.equal(bus.pending(), 1);
    assert.equal(await bus.deliverDue(), 1);
    assert.equal(bus.pending(), 0);
    assert.equal(await bus.deliverDue(), 0);
  });

  it('a refused message is delivered again with growing delays, up to a limit', async () => {
    const bus = aBus({max_attempts: 9, min_backoff_ms: 200, max_backoff_ms: 10_000});
    answer = async () => {
      throw new Error('no');
    };
    await bus.publish('control', {a: 1});
    const waits: number[] = [];
    while (bus.pending() > 0) {
      const due = bus.nextDueAt() ?? assert.fail('a pending message has a time');
      waits.push(due - time);
      time = due - 1;
      assert.equal(await bus.deliverDue(), 0, 'no attempt before its time');
      time = due;
      assert.equal(await bus.deliverDue(), 1);
    }
    // Three quarters of the delay, which doubles from 200 ms up to 10 s.
    assert.deepEqual(waits, [0, 150, 300, 600, 1200, 2400, 4800, 7500, 7500]);
    const attempts = tries.map(delivery => delivery.attempt);
    assert.deepEqual(attempts, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  it('a message becomes a dead letter with its last error after the last attempt', async () => {
    const bus = aBus({max_attempts: 2});
    answer = async ({attempt}) => {
      throw new Error(`reason ${attempt}`);
    };
    const id = await bus.publish('control', {a: 1});
    await bus.deliverDue();
    assert.deepEqual(bus.deadLetters(), []);
    time += 60_000;
    await bus.deliverDue();
    assert.equal(bus.pending(), 0);
    assert.deepEqual(bus.deadLetters(), [
      {
        ...{id, topic: 'control', message: {a: 1}, attempts: 2, last_error: 'reason 2'},
        ...{published_at: new Date(1_000_000).toISOString(), died_at: new Date(1_060_000).toISOString()},
      },
    ]);
  });

  it('a refused message of a topic with a retention is delivered again until it expires, and is no dead letter', async () => {
    const bus = aBus({max_attempts: 2, retention_s: topic => (topic === 'tick' ? 600 : undefined)});
    answer = async () => {
      throw new Error('bad');
    };
    await bus.publish('tick', {a: 1});
    for (let attempt = 1; attempt <= 10; attempt++) {
      await bus.deliverDue();
      assert.equal(tries.length, attempt);
      time += 60_000;
    }
    assert.equal(bus.pending(), 1);
    time += 1;
    await bus.deliverDue();
    assert.deepEqual([tries.length, bus.pending(), bus.deadLetters()], [10, 0, []]);
  });

  it('a message waits for an absent receiver without counting attempts', async () => {
    const bus = aBus({max_attempts: 3});
    answer = async () => {
      throw new ReceiverAway('gone');
    };
    await bus.publish('control', {a: 1});
    for (let i = 0; i < 50; i++) {
      await bus.deliverDue();
      time += 1000;
    }
    assert.equal(tries.length, 50);
    answer = async () => {};
    await bus.deliverDue();
    assert.equal(tries.at(-1)?.attempt, 1);
    assert.equal(bus.pending(), 0);
    assert.deepEqual(bus.deadLetters(), []);
  });

  it('a refused message does not delay other messages', async () => {
    const bus = aBus();
    answer = async ({message}) => {
      if (message.bad) throw new Error('bad');
    };
    await bus.publish('control', {bad: true});
    for (let n = 0; n < 30; n++) await bus.publish('control', {n});
    assert.equal(await bus.deliverDue(), 31);
    assert.equal(bus.pending(), 1);
  });

  it('concurrent deliveries stay within the limit', async () => {
    let under_way = 0;
    let most = 0;
    answer = async () => {
      most = Math.max(most, ++under_way);
      await new Promise(resolve => setImmediate(resolve));
      under_way--;
    };
    const bus = aBus({concurrency: 3});
    for (let n = 0; n < 20; n++) await bus.publish('control', {n});
    assert.equal(await bus.deliverDue(), 20);
    assert.equal(most, 3);
  });

  it('a topic whose receiver is slow delays no other topic', async () => {
    const slow = Promise.withResolvers<void>();
    answer = ({topic}) => (topic === 'objects' ? slow.promise : Promise.resolve());
    const bus = aBus({concurrency: 2});
    for (let n = 0; n < 5; n++) await bus.publish('objects', {n});
    await bus.publish('control', {n: 5});
    const delivered = bus.deliverDue();
    await until('the message of the other topic arrived', () => bus.pending() === 5);
    assert.deepEqual(messages(), [{n: 0}, {n: 1}, {n: 5}]);
    slow.resolve();
    assert.equal(await delivered, 6);
  });

  it('a message is never delivered twice at once', async () => {
    answer = () => new Promise(resolve => setImmediate(resolve));
    const bus = aBus({concurrency: 4});
    for (let n = 0; n < 10; n++) await bus.publish('control', {n});
    await Promise.all([bus.deliverDue(), bus.deliverDue(), bus.deliverDue()]);
    assert.equal(tries.length, 10);
  });

  it('a message exists only if its transaction was committed', async () => {
    const database = new DatabaseSync(':memory:');
    const bus = aBus({database});
    database.exec('BEGIN');
    bus.enqueue('control', {kept: false});
    database.exec('ROLLBACK');
    database.exec('BEGIN');
    bus.enqueue('control', {kept: true});
    database.exec('COMMIT');
    await bus.deliverDue();
    assert.deepEqual(messages(), [{kept: true}]);
  });

  it('an unacknowledged message is delivered again after a restart', async () => {
    const first = new DatabaseSync(folder.at('bus.db'));
    const bus = aBus({database: first});
    // The process ends while the receiver handles the message.
    answer = () => new Promise(() => {});
    const id = await bus.publish('control', {a: 1});
    void bus.deliverDue();
    assert.equal(tries.length, 1);
    first.close();

    answer = async () => {};
    const second = new DatabaseSync(folder.at('bus.db'));
    await aBus({database: second}).deliverDue();
    second.close();
    const ids = tries.map(delivery => delivery.id);
    assert.deepEqual(ids, [id, id]);
  });

  it('a started bus delivers by itself, and a stopped bus starts no delivery', async () => {
    const bus = aBus({now: Date.now, min_backoff_ms: 1});
    answer = async ({attempt}) => {
      if (attempt < 3) throw new Error('not yet');
    };
    await bus.publish('control', {a: 1});
    bus.start();
    await until('it was taken', () => bus.pending() === 0);
    assert.equal(tries.length, 3);
    await bus.stop();
    await bus.publish('control', {b: 1});
    await new Promise(resolve => setImmediate(resolve));
    assert.equal(bus.pending(), 1);
  });

  it('a message stays when the database fails to record its delivery, and the bus continues', async () => {
    const database = new DatabaseSync(':memory:');
    const troubles: unknown[] = [];
    const bus = aBus({database, away_ms: 1, trouble: error => troubles.push(error)});
    await bus.publish('control', {a: 1});
    database.exec(
      `CREATE TRIGGER full BEFORE DELETE ON bus_messages BEGIN SELECT RAISE(FAIL, 'disk full'); END`,
    );
    await bus.deliverDue();
    assert.match(String(troubles[0]), /disk full/);
    assert.equal(bus.pending(), 1);
    database.exec('DROP TRIGGER full');
    await bus.deliverDue();
    assert.equal(bus.pending(), 0);
    assert.equal(tries.length, 2);
  });

  it('ids of messages differ, also at equal time and chance', async () => {
    const bus = aBus();
    const ids = await Promise.all(Array.from({length: 100}, () => bus.publish('control', {})));
    assert.equal(new Set(ids).size, 100);
  });

  it('a delayed message waits until its time', async () => {
    const bus = aBus();
    bus.enqueue('control', {late: true}, {delay_ms: 500});
    assert.equal(await bus.deliverDue(), 0);
    time += 400;
    bus.enqueue('control', {soon: true});
    time += 100;
    await bus.deliverDue();
    assert.deepEqual(messages(), [{soon: true}, {late: true}]);
  });
});
