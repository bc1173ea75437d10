import assert from 'node:assert/strict';
import {runRecords, streamRecords} from '../../../shared/control-plane/documents/documents.ts';
import type {Run} from '../../../shared/domain/records/run.ts';
import type {Stream} from '../../../shared/domain/records/stream.ts';
import {aRun, aStream} from '../../world/builders.ts';
import {send, sendAlone} from '../../world/people.ts';
import {aWorkingWorld} from '../../world/scenes/one-worker.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

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
    await world.untilStoredOnce('my-run', '000', someLines(20));
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

  const parents: {
    name: string;
    run: Partial<Run>;
    stream?: Partial<Stream>;
    message: object;
    then: [outcome: string, status: Run['status'], reason: string | null, misses: number];
  }[] = [
    {
      name: 'retry leaves a paused run paused',
      run: {status: 'paused', reason: 'a person paused it', model_misses: 2},
      message: {action: 'retry', stream: '007'},
      then: ['applied', 'paused', 'a person paused it', 2],
    },
    {
      name: 'retry opens a failed run, and ends the count of its model',
      run: {status: 'failed', reason: 'all have failed', model_misses: 2},
      message: {action: 'retry', stream: '007'},
      then: ['applied', 'active', null, 0],
    },
    {
      name: 'retry of a run that a certain failure ended without a failed stream opens the run',
      run: {status: 'failed', reason: 'no model', certain_failure: 'no model'},
      stream: {status: 'pending'},
      message: {action: 'retry'},
      then: ['applied', 'active', null, 0],
    },
    {
      name: 'retry of a waiting stream of such a run leaves the run failed',
      run: {status: 'failed', reason: 'no model', certain_failure: 'no model'},
      stream: {status: 'pending'},
      message: {action: 'retry', stream: '007'},
      then: ['rejected', 'failed', 'no model', 0],
    },
    {
      name: 'cancel leaves a failed run failed',
      run: {status: 'failed', reason: 'all have failed'},
      message: {action: 'cancel', stream: '007'},
      then: ['applied', 'failed', 'all have failed', 0],
    },
    {
      name: 'retry leaves a stopped run stopped',
      run: {status: 'stopped'},
      message: {action: 'retry', stream: '007'},
      then: ['rejected', 'stopped', null, 0],
    },
  ];
  for (const {name, run, stream, message, then} of parents)
    it(name, async () => {
      const world = new World(ONE_SLOT);
      await world.store.transaction(async tx => {
        runRecords.set(tx, aRun(run));
        streamRecords.set(tx, aStream({status: 'failed', ...stream}));
      });
      const {outcome} = await sendAlone(world, {run: 'my-run', ...message});
      const {status, reason, model_misses, certain_failure} = (await world.run('my-run')) ?? assert.fail();
      assert.deepEqual([outcome, status, reason, model_misses], then);
      assert.equal(certain_failure, status === 'active' ? null : (run.certain_failure ?? null));
    });

  it('retry of more streams than one message revives says so @full', async () => {
    const world = new World(ONE_SLOT);
    for (let index = 0; index < 203; index++) world.drop('my-run', index, '');
    await world.deliverAll();
    const first = await send(world, {action: 'retry', run: 'my-run'});
    assert.match(first.reason, /; and 180 more; more have failed: send it again for them$/);
  });
});
