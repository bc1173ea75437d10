import assert from 'node:assert/strict';
import {aWorkingWorld} from '../../world/scenes/one-worker.ts';
import {A0} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import type {World} from '../../world/world.ts';

const [OLD, NEW] = ['c'.repeat(64), 'd'.repeat(64)];
const WARNING = /continues with worker bundle dddddddddddd: its earlier shards are from cccccccccccc/;

async function warnings(world: World): Promise<string[]> {
  return (await world.timeline('run')).filter(text => WARNING.test(text));
}

describe('a run', () => {
  it('names the worker bundle of its first lease', async () => {
    const world = await aWorkingWorld();
    assert.equal((await world.run('my-run'))?.bundle, OLD);
    assert.equal((await world.worker(A0))?.bundle, OLD);
  });

  it('goes on with the bundle of a later deployment, and an event warns once', async () => {
    const world = await aWorkingWorld();
    world.redeploy({GLEANER_BUNDLE: NEW});
    for (const incarnation of [1, 2]) {
      world.preempt(A0);
      await world.until(
        'the next TPU works',
        async () => {
          const worker = await world.worker(A0);
          return worker?.phase === 'working' && worker.incarnation > incarnation;
        },
        20,
        1,
      );
    }
    assert.equal((await world.run('my-run'))?.bundle, NEW);
    await world.untilStoredOnce('my-run', '000', someLines(20));
    assert.equal((await warnings(world)).length, 1);
  });

  it('that ends before a deployment has no warning', async () => {
    const world = await aWorkingWorld();
    await world.untilAsleep();
    world.redeploy({GLEANER_BUNDLE: NEW});
    await world.minutes(2);
    assert.deepEqual(await warnings(world), []);
  });
});
