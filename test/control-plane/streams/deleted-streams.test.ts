import assert from 'node:assert/strict';
import {untilShards} from '../../world/scenes/one-worker.ts';
import {ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('a stream object that is deleted', () => {
  it('before its event creates no run', async () => {
    const world = new World(ONE_SLOT);
    await world.objects.delete(world.drop('my-run', 0, someLines(2)));
    await world.deliverAll();
    assert.equal(await world.run('my-run'), undefined);
  });

  it('under a worker is recorded once, in its stream and in the events, and at the end in its run', async () => {
    const world = new World(ONE_SLOT);
    const object = world.drop('my-run', 0, someLines(24));
    await untilShards(world, 2);
    await world.objects.delete(object);
    const text = `${object} is gone: verify cannot compare`;
    await world.minutes(2, 1);
    assert.equal((await world.stream('my-run', '000'))?.last_error, text);
    await world.minutes(2, 1);
    assert.equal((await world.timeline('stream')).filter(each => each === text).length, 1);
    await world.untilAsleep();
    const {status, reason} = (await world.run('my-run')) ?? {};
    assert.deepEqual([status, reason], ['completed', text]);
  });

  it('between the end of its stream and the end of its run is named in the reason of the run', async () => {
    const world = new World(ONE_SLOT);
    const objects = [0, 1].map(index => world.drop('my-run', index, someLines(20)));
    const isAnyDone = async () => (await world.run('my-run'))?.streams_completed === 1;
    await world.until('one is done', isAnyDone, 30, 1);
    const done = (await world.stream('my-run', '000'))?.status === 'completed' ? 0 : 1;
    await world.objects.delete(objects[done] ?? '');
    await world.untilAsleep();
    const {status, reason} = (await world.run('my-run')) ?? {};
    assert.equal(status, 'completed');
    assert.equal(reason, `${objects[done]} is gone: verify cannot compare`);
  });
});
