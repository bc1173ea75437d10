/** Messages about jobs: `submit`, `cancel`, `retry` and `clear`. */
import assert from 'node:assert/strict';
import {workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {jobRecords} from '../../../shared/control-plane/documents/job-documents.ts';
import type {Job} from '../../../shared/domain/records/job.ts';
import {at, aWorker} from '../../world/builders.ts';
import {sendAlone} from '../../world/people.ts';
import {aJob, aRunningJob, HOLDER, jobIn} from '../../world/scenes/jobs.ts';
import {A0, A1, ONE_SLOT} from '../../world/scenes/places.ts';
import {World} from '../../world/world.ts';

async function aWorldWith(...jobs: Job[]): Promise<World> {
  const world = new World(ONE_SLOT);
  await world.store.transaction(async tx => {
    for (const job of jobs) jobRecords.set(world.deps, tx, job);
  });
  return world;
}

const failed = (job: string, changes: Partial<Job> = {}) =>
  aJob({job, status: 'failed', cause: 'exit', queue: null, completed_at: at(0), ...changes});
const statusOf = async (world: World, id: string) => (await world.store.get(`jobs/${id}`))?.status;
const RETRY_ALL = {action: 'retry', where: {cause: 'exit'}};

describe('a message about a job', () => {
  it('submit leaves a job of the same id as it is', async () => {
    const world = await aWorldWith(aRunningJob());
    const {outcome} = await sendAlone(world, {action: 'submit', job: 'my-job', code: 'result = 2'});
    assert.deepEqual([outcome, (await jobIn(world)).status], ['rejected', 'running']);
  });

  it('cancel ends a job whose event is still under way', async () => {
    const world = new World(ONE_SLOT);
    await world.writeJob('my-job', {code: 'result = 1', status: 'pending'});
    assert.equal((await sendAlone(world, {action: 'cancel', job: 'my-job'})).outcome, 'applied');
    assert.equal(await statusOf(world, 'my-job'), 'cancelled');
  });

  it('cancel lets each slice store what it has, and ends the attempt with its cost', async () => {
    const members = [A0, A1].map(worker => ({...HOLDER, worker}));
    const lease = {...HOLDER, epoch: 3, host_count: 1, members};
    const world = await aWorldWith(aRunningJob({slices: 2, lease, started_at: '2020-01-01T00:00:00.000Z'}));
    await world.store.transaction(async tx => {
      for (const name of [A0, A1])
        workerRecords.set(
          tx,
          aWorker({name, phase: 'working', work: 'job:my-job', epoch: 3, usd_per_hour: 1}),
        );
    });
    await sendAlone(world, {action: 'cancel', job: 'my-job'});
    assert.deepEqual([(await jobIn(world)).status, (await world.worker(A1))?.drains], ['running', true]);
    await world.minutes(4);
    const {status, spent_usd} = await jobIn(world);
    const works = await Promise.all([A0, A1].map(async name => (await world.worker(name))?.work));
    assert.deepEqual([status, spent_usd > 0, works], ['cancelled', true, [null, null]]);
  });

  it('retry by cause runs the failed jobs again, in spite of an invalid document', async () => {
    const world = await aWorldWith(failed('a'), failed('b', {cause: 'memory'}), failed('c'), failed('d'));
    await world.edit('jobs/c', {timeout: 'long'});
    assert.equal((await sendAlone(world, RETRY_ALL)).outcome, 'applied');
    const statuses = await Promise.all(['a', 'b', 'c', 'd'].map(id => statusOf(world, id)));
    assert.deepEqual(statuses, ['scheduled', 'failed', 'failed', 'scheduled']);
  });

  it('retry by cause is rejected where the jobs that failed for it wait again', async () => {
    const world = await aWorldWith(aJob({cause: 'exit'}));
    const {outcome, reason} = await sendAlone(world, RETRY_ALL);
    assert.deepEqual([outcome, reason], ['rejected', 'no job has failed for the cause "exit"']);
  });

  for (const {name, jobs, text, changed} of [
    {name: '200 jobs', jobs: 201, text: '', changed: 200},
    {name: '8 MiB', jobs: 10, text: 'x'.repeat(900_000), changed: 9},
  ])
    it(`retry by cause changes at most ${name} in one commit`, async () => {
      const ids = Array.from({length: jobs}, (_, index) => `job-${index}`);
      const world = await aWorldWith(...ids.map(id => failed(id, {metadata: {text}})));
      await sendAlone(world, RETRY_ALL);
      const isScheduled = {field: 'status', op: '==', value: 'scheduled'} as const;
      assert.equal(await world.store.count('jobs', [isScheduled]), changed);
    });

  it('clear leaves a job that a person returned to pending', async () => {
    const world = await aWorldWith(failed('old'), failed('again', {status: 'pending'}));
    await sendAlone(world, {action: 'clear', before_at: at(9)});
    assert.deepEqual([await statusOf(world, 'old'), await statusOf(world, 'again')], [undefined, 'pending']);
  });
});
