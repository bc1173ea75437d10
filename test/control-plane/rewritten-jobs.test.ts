/** Documents of jobs that people delete and write again while a worker has the first one. */
import assert from 'node:assert/strict';
import {scheduleNewJob} from '../../shared/control-plane/jobs/schedule-jobs.ts';
import {aWorldAtWork, deleteJob, jobIn, storedJob} from '../support/jobs.ts';

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
    world.control({action: 'cancel', job: 'my-job'});
    await world.deliverAll();
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
