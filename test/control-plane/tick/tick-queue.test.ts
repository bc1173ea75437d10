import assert from 'node:assert/strict';
import {TickQueue} from '../../../shared/control-plane/calls/tick-queue.ts';

type Timer = {at: number; done: () => void};

/** A clock that a test steps, and ticks that end when the test says so. */
class Stepped {
  now = 0;
  readonly ended: string[] = [];
  begun = 0;
  readonly queue = new TickQueue({now: () => this.now, sleep: ms => this.#sleep(ms)});
  readonly #timers: Timer[] = [];
  #end: (error?: Error) => void = () => {};

  #sleep(ms: number): Promise<void> {
    return new Promise(done => this.#timers.push({at: this.now + ms, done}));
  }

  #tick = () => {
    this.begun += 1;
    return new Promise<void>((resolve, reject) => {
      this.#end = error => (error ? reject(error) : resolve());
    });
  };

  /** A message; `ended` gets its name and outcome when it is acknowledged. */
  async send(name: string, source: 'wake' | 'scheduler' = 'wake'): Promise<void> {
    this.queue.request(source, this.#tick).then(
      () => this.ended.push(name),
      (error: Error) => this.ended.push(`${name}: ${error.message}`),
    );
    await this.settle();
  }

  async endTick(error?: Error): Promise<void> {
    this.#end(error);
    await this.settle();
  }

  /** Seconds go by; timers that are due wake up in their order. */
  async wait(seconds: number): Promise<void> {
    const until = this.now + seconds * 1000;
    for (;;) {
      const [next] = this.#timers.filter(({at}) => at <= until).sort((a, b) => a.at - b.at);
      if (!next) break;
      this.#timers.splice(this.#timers.indexOf(next), 1);
      this.now = next.at;
      next.done();
      await this.settle();
    }
    this.now = until;
  }

  async settle(): Promise<void> {
    for (let turn = 0; turn < 10; turn++) await Promise.resolve();
  }
}

describe('the queue of ticks', () => {
  it('begins the tick of a first wake at once and acknowledges the wake when the tick has ended', async () => {
    const world = new Stepped();
    await world.send('first');
    assert.deepEqual([world.begun, world.ended], [1, []]);
    await world.endTick();
    assert.deepEqual(world.ended, ['first']);
  });

  it('makes one tick of a thousand wakes that come while another tick runs', async () => {
    const world = new Stepped();
    await world.send('first');
    for (let count = 0; count < 1000; count++) await world.send('burst');
    assert.deepEqual(world.ended.length, 1000, 'each later wake is acknowledged at once');
    await world.endTick();
    await world.wait(9);
    assert.equal(world.begun, 1);
    await world.wait(1);
    assert.equal(world.begun, 2);
    await world.endTick();
    await world.wait(600);
    assert.deepEqual([world.begun, world.ended.length], [2, 1001]);
  });

  it('pauses ten seconds, or five times the length of the last tick', async () => {
    for (const {length_s, pause_s} of [
      {length_s: 1, pause_s: 10},
      {length_s: 4, pause_s: 20},
    ]) {
      const world = new Stepped();
      await world.send('first');
      await world.wait(length_s);
      await world.endTick();
      await world.send('second');
      await world.wait(pause_s - 0.1);
      assert.equal(world.begun, 1);
      await world.wait(0.1);
      assert.equal(world.begun, 2);
    }
  });

  it('keeps one waiter in a pause and acknowledges each further wake', async () => {
    const world = new Stepped();
    await world.send('first');
    await world.endTick();
    for (const name of ['second', 'third', 'fourth']) await world.send(name);
    assert.deepEqual(world.ended, ['first', 'third', 'fourth']);
    await world.wait(10);
    assert.equal(world.begun, 2);
    await world.endTick();
    assert.deepEqual(world.ended.at(-1), 'second');
  });

  it('begins a tick for the Scheduler in a pause, and that tick answers the waiter too', async () => {
    const world = new Stepped();
    await world.send('first');
    await world.endTick();
    await world.send('second');
    await world.send('minute', 'scheduler');
    assert.equal(world.begun, 2);
    await world.endTick();
    await world.wait(600);
    assert.deepEqual([world.begun, world.ended], [2, ['first', 'second', 'minute']]);
  });

  it('leaves the message of the Scheduler to the tick that runs', async () => {
    const world = new Stepped();
    await world.send('first');
    await world.send('minute', 'scheduler');
    assert.deepEqual([world.begun, world.ended], [1, ['minute']]);
  });

  it('begins no tick later than 240 s after the start of its request', async () => {
    const world = new Stepped();
    await world.send('first');
    await world.send('later');
    await world.wait(50);
    await world.endTick();
    assert.deepEqual(world.ended, ['later', 'first'], 'the pause of 250 s ends too late for the request');
    await world.wait(600);
    assert.equal(world.begun, 1);
  });

  it('passes the error of a tick on, so that the message comes again', async () => {
    const world = new Stepped();
    await world.send('first');
    await world.endTick(new Error('the Store is away'));
    assert.deepEqual(world.ended, ['first: the Store is away']);
    await world.send('again');
    await world.wait(10);
    assert.equal(world.begun, 2);
  });

  it('does not wait for a tick that hangs for longer than its function may run', async () => {
    const world = new Stepped();
    await world.send('hangs');
    await world.wait(599);
    await world.send('minute 9', 'scheduler');
    assert.equal(world.begun, 1);
    await world.wait(1);
    await world.send('minute 10', 'scheduler');
    assert.equal(world.begun, 2);
  });
});
