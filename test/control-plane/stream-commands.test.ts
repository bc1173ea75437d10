import assert from 'node:assert/strict';
import {send, sendAlone} from '../support/control-messages.ts';
import {World} from '../support/control-plane-harness.ts';
import {aWorkingWorld} from '../support/one-worker.ts';
import {A0, ONE_SLOT} from '../support/places.ts';
import {someLines} from '../support/shard-plan.ts';

describe('cancel and retry of streams', () => {
  it('cancel fails a stream and its worker leaves it; retry revives it, alone or with all that failed', async () => {
    const world = await aWorkingWorld();
    const cancel = await send(world, {action: 'cancel', run: 'my-run', stream: '000'});
    assert.deepEqual([cancel.outcome, (await world.stream('my-run', '000'))?.status], ['applied', 'failed']);
    assert.equal((await world.worker(A0))?.work, null);
    await world.untilAsleep();
    assert.ok(!(await world.stream('my-run', '000'))?.finished);
    assert.equal((await world.run('my-run'))?.status, 'failed');
    const unknown = await send(world, {action: 'retry', run: 'my-run', stream: '009'});
    assert.deepEqual([unknown.outcome, unknown.reason], ['rejected', 'there is no stream my-run/009']);
    assert.equal((await send(world, {action: 'retry', run: 'my-run'})).outcome, 'applied');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    assert.match((await send(world, {action: 'retry', run: 'my-run'})).reason, /has no failed stream/);
    const late = await send(world, {action: 'cancel', run: 'my-run', stream: '000'});
    assert.deepEqual([late.outcome, late.reason], ['rejected', 'stream my-run/000 is completed']);
  });

  it('retry of a stream of a failed run makes the run active before any tick', async () => {
    const world = await aWorkingWorld();
    await send(world, {action: 'cancel', run: 'my-run', stream: '000'});
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'failed');
    await sendAlone(world, {action: 'retry', run: 'my-run', stream: '000'});
    assert.equal((await world.run('my-run'))?.status, 'active');
  });

  it('retry of more streams than one message revives says so @full', async () => {
    const world = new World(ONE_SLOT);
    for (let index = 0; index < 203; index++) world.drop('my-run', index, '');
    await world.deliverAll();
    const first = await send(world, {action: 'retry', run: 'my-run'});
    assert.match(first.reason, /; and 180 more; more have failed: send it again for them$/);
  });
});
