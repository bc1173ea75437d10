/** Requests for work that come at about the same time read the active runs once. */
import assert from 'node:assert/strict';
import {ActiveRuns} from '../../../shared/control-plane/caches/active-runs.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

async function aRun() {
  const world = new World();
  world.drop('my-run', 0, someLines(4));
  await world.deliverAll();
  const active = new ActiveRuns();
  const state = {queries: 0, isAway: false};
  const store = {
    ...world.deps.store,
    query: async (...args: Parameters<typeof world.store.query>) => {
      state.queries += 1;
      if (state.isAway) throw new Error('unavailable');
      return world.store.query(...args);
    },
  };
  const read = (since_ms: number) => active.readSince('tpu', since_ms, {...world.deps, store});
  return {world, read, state};
}

describe('the list of active runs', () => {
  it('is read once by requests that come at the same time', async () => {
    const {world, read, state} = await aRun();
    const lists = await Promise.all(Array.from({length: 100}, () => read(world.now - 2000)));
    assert.equal(state.queries, 1);
    for (const runs of lists)
      assert.deepEqual(
        runs.map(({run}) => run),
        ['my-run'],
      );
  });

  it('is read again by a request that needs a newer list', async () => {
    const {world, read, state} = await aRun();
    await read(world.now);
    world.now += 10_000;
    await read(world.now);
    assert.equal(state.queries, 2);
  });

  it('is read again after a failure', async () => {
    const {world, read, state} = await aRun();
    const since_ms = world.now;
    state.isAway = true;
    await assert.rejects(read(since_ms), /unavailable/);
    state.isAway = false;
    assert.equal((await read(since_ms)).length, 1);
  });
});
