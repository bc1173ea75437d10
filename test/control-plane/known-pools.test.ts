/** Requests of workers that come at about the same time read their pool once. */
import assert from 'node:assert/strict';
import {KnownPools, poolOf} from '../../shared/control-plane/caches/pool-cache.ts';
import {paths} from '../../shared/domain/names.ts';
import {World} from '../support/control-plane-harness.ts';

async function aWorld() {
  const world = new World();
  const {said: _, limiter: __, ...own} = world.deps.config.pool;
  const fast = {...own, pool: 'fast', accelerator: 'v6e-1', poll_s: 2, version: 1};
  await world.store.transaction(async tx => tx.set(paths.pool('fast'), fast as never));
  const state = {reads: 0, isAway: false};
  const store = {
    ...world.deps.store,
    get: async (path: string) => {
      state.reads += 1;
      if (state.isAway) throw new Error('unavailable');
      return world.store.get(path);
    },
  };
  const knownPools = new KnownPools();
  const find = (name: string) => poolOf({...world.deps, store, knownPools}, name);
  return {world, find, state};
}

describe('the pools that worker-api knows', () => {
  it('are read once by requests that come at the same time', async () => {
    const {find, state} = await aWorld();
    const found = await Promise.all(Array.from({length: 100}, () => find('fast')));
    assert.equal(state.reads, 1);
    for (const pool of found) assert.deepEqual([pool?.accelerator, pool?.poll_s], ['v6e-1', 2]);
  });

  it('are read again after two seconds', async () => {
    const {world, find, state} = await aWorld();
    await find('fast');
    world.now += 2001;
    await find('fast');
    assert.equal(state.reads, 2);
  });

  it('have the settings of the deployment where its own pool has no document', async () => {
    const {world, find} = await aWorld();
    assert.equal((await find('tpu'))?.accelerator, world.deps.config.pool.accelerator);
  });

  it('lack a name without a document', async () => {
    const {find} = await aWorld();
    assert.equal(await find('other'), undefined);
  });

  it('are read again after a failed read', async () => {
    const {find, state} = await aWorld();
    state.isAway = true;
    await assert.rejects(find('fast'), /unavailable/);
    state.isAway = false;
    assert.equal((await find('fast'))?.pool, 'fast');
  });
});
