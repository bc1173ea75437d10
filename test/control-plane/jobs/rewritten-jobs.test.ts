/** Documents of jobs that people delete and write again while a worker has the first one. */
import assert from 'node:assert/strict';
import {scheduleNewJob} from '../../../shared/control-plane/jobs/schedule-jobs.ts';
import type {Document, Store} from '../../../shared/ports/ports.ts';
import {aWorldAtWork, deleteJob, jobIn, storedJob} from '../../world/scenes/jobs.ts';
import {ONE_SLOT} from '../../world/scenes/places.ts';
import {World} from '../../world/world.ts';

describe('a job that is deleted and written again', () => {
  for (const way of ['a document', 'a message'])
    it(`by ${way} goes on above the epoch that a worker still runs, because that worker may store output`, async () => {
      const world = await aWorldAtWork();
      assert.equal((await jobIn(world)).epoch, 1);
      await deleteJob(world);
      if (way === 'a document') {
        await world.writeJob('my-job', {code: 'result = 2', status: 'pending'});
        await world.deliverNext('job');
      } else {
        world.control({action: 'submit', job: 'my-job', code: 'result = 2'});
        await world.deliverNext('control');
      }
      const {status, epoch} = await jobIn(world);
      assert.deepEqual([status, epoch], ['scheduled', 1]);
      await world.until('the next attempt', async () => (await jobIn(world)).epoch === 2, 9, 1);
    });
});

describe('a failed job that a person returns to pending', () => {
  it('keeps its epoch, its attempts and what it has spent', async () => {
    const world = await aWorldAtWork();
    await world.order({action: 'cancel', job: 'my-job'});
    await world.agent('tpu-us-central1-a-0').finish({outcome: 'preempted'});
    const before = await storedJob(world);
    await world.store.transaction(async tx => tx.set('jobs/my-job', {...before, status: 'pending'}));
    await scheduleNewJob(world.deps, 'my-job');
    const {status, epoch, attempts, spent_usd} = await jobIn(world);
    assert.deepEqual(
      [status, epoch, attempts, spent_usd],
      ['scheduled', 1, before.attempts, before.spent_usd],
    );
    assert.ok(spent_usd > 0);
  });
});

describe('a job whose document changes between its check and its schedule', () => {
  const changed = async (next: Document | undefined) => {
    const world = new World(ONE_SLOT);
    await world.writeJob('my-job', {code: 'result = 1', status: 'pending'});
    const {store} = world.deps;
    const get: Store['get'] = async path => {
      const found = await store.get(path);
      if (path !== 'jobs/my-job') return found;
      await store.transaction(async tx => (next ? tx.set('jobs/my-job', next) : tx.delete('jobs/my-job')));
      return found;
    };
    const isScheduled = await scheduleNewJob({...world.deps, store: {...store, get}}, 'my-job');
    return {isScheduled, stored: await store.get('jobs/my-job')};
  };

  it('waits as the newest document says', async () => {
    const {isScheduled, stored} = await changed({code: 'result = 2', timeout: 7});
    assert.deepEqual(
      [isScheduled, stored?.status, stored?.code, stored?.timeout],
      [true, 'scheduled', 'result = 2', 7],
    );
  });

  it('stays deleted', async () => {
    assert.deepEqual(await changed(undefined), {isScheduled: false, stored: undefined});
  });
});

describe('the times that a person writes into a job', () => {
  it('order the job by its creation, and expire only an ended job', async () => {
    const world = new World(ONE_SLOT);
    const times = {created_at: '2020-01-01T00:00:00.000Z', expire_at: '2020-01-02T00:00:00.000Z'};
    await world.writeJob('my-job', {code: 'result = 1', status: 'pending', ...times});
    await scheduleNewJob(world.deps, 'my-job');
    const {created_at, expire_at} = await jobIn(world);
    assert.deepEqual([created_at, expire_at], [times.created_at, null]);
  });
});
