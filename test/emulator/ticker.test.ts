import assert from 'node:assert/strict';
import {EmbeddedTicker} from '../../shared/embedded/ticker.ts';

/** Ticker with manual time: `fire` ends an interval, `endTick` ends a tick. */
function aTicker(options: {is_on?: boolean} = {}) {
  const world = {
    is_on: options.is_on ?? false,
    ticks: 0,
    running: 0,
    most_running: 0,
    troubles: [] as string[],
    timer: undefined as (() => void) | undefined,
    endTick: () => {},
    failTick: (_error: Error) => {},
  };
  const ticker = new EmbeddedTicker({
    interval_ms: 1000,
    saved: {
      get: () => world.is_on,
      set: on => {
        world.is_on = on;
      },
    },
    tick: async () => {
      world.ticks++;
      world.most_running = Math.max(world.most_running, ++world.running);
      await new Promise<void>((resolve, reject) => {
        world.endTick = resolve;
        world.failTick = reject;
      }).finally(() => world.running--);
    },
    trouble: error => world.troubles.push((error as Error).message),
    after: (_delay_ms, callback) => {
      world.timer = callback;
      return () => {
        if (world.timer === callback) world.timer = undefined;
      };
    },
  });
  const settle = () => new Promise(resolve => setImmediate(resolve));
  const fire = () => {
    const callback = world.timer;
    world.timer = undefined;
    callback?.();
  };
  return {ticker, world, settle, fire};
}

describe('EmbeddedTicker', () => {
  it('ticks at once when it is switched on, and again after each interval', async () => {
    const {ticker, world, settle, fire} = aTicker();
    ticker.start();
    assert.equal(world.ticks, 0);
    await ticker.on();
    assert.equal(world.ticks, 1);
    for (let tick = 2; tick < 5; tick++) {
      world.endTick();
      await settle();
      fire();
      assert.equal(world.ticks, tick);
    }
  });

  it('is switched on once by several calls', async () => {
    const {ticker, world, settle, fire} = aTicker();
    ticker.start();
    await Promise.all([ticker.on(), ticker.on(), ticker.on()]);
    world.endTick();
    await settle();
    fire();
    await ticker.on();
    assert.equal(world.ticks, 2);
  });

  it('starts a tick only after the end of the last tick', async () => {
    const {ticker, world, settle, fire} = aTicker();
    ticker.start();
    await ticker.on();
    fire();
    void ticker.tickNow();
    await ticker.off();
    await ticker.on();
    await settle();
    assert.equal(world.ticks, 1);
    for (let i = 0; i < 6; i++) {
      world.endTick();
      await settle();
      fire();
    }
    assert.equal(world.most_running, 1);
    assert.ok(world.ticks >= 3);
  });

  it('stops ticking after it was switched off', async () => {
    const {ticker, world, settle} = aTicker();
    ticker.start();
    await ticker.on();
    await ticker.off();
    world.endTick();
    await settle();
    assert.equal(world.timer, undefined);
    assert.equal(world.ticks, 1);
    assert.equal(ticker.isOn(), false);
  });

  it('continues to tick after a tick that failed', async () => {
    const {ticker, world, settle, fire} = aTicker();
    ticker.start();
    await ticker.on();
    world.failTick(new Error('broken'));
    await settle();
    fire();
    assert.equal(world.ticks, 2);
    assert.deepEqual(world.troubles, ['broken']);
  });

  it('starts in the state that the last process stored', async () => {
    const was_on = aTicker({is_on: true});
    was_on.ticker.start();
    assert.equal(was_on.world.ticks, 1);
    const was_off = aTicker({is_on: false});
    was_off.ticker.start();
    assert.equal(was_off.world.ticks, 0);
  });

  it('keeps the state on for the next process when the current process stops', async () => {
    const {ticker, world, settle} = aTicker();
    ticker.start();
    await ticker.on();
    const stopped = ticker.stop();
    world.endTick();
    await stopped;
    await settle();
    assert.equal(world.timer, undefined);
    assert.equal(world.is_on, true);
  });

  it('ticks on demand while it is off', async () => {
    const {ticker, world} = aTicker();
    const ticked = ticker.tickNow();
    world.endTick();
    await ticked;
    assert.equal(world.ticks, 1);
    assert.equal(ticker.isOn(), false);
  });
});
