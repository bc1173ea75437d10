/** Attempts that a tick ends, and long attempts that a tick reports. */
import assert from 'node:assert/strict';
import {workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {jobRecords} from '../../../shared/control-plane/documents/job-documents.ts';
import {
  endDueJobs,
  endExpiredJobs,
  endOrphanedJobs,
  reportLongJobs,
} from '../../../shared/control-plane/jobs/end-jobs.ts';
import type {Job} from '../../../shared/domain/records/job.ts';
import type {Worker} from '../../../shared/domain/records/worker.ts';
import {NEVER_SERVED} from '../../../shared/domain/worker/served-time.ts';
import {at, aWorker, T0} from '../../world/builders.ts';
import {aJob, aRunningJob, HOLDER, jobIn} from '../../world/scenes/jobs.ts';
import {A0, A1, TWO_SLOTS} from '../../world/scenes/places.ts';
import {World} from '../../world/world.ts';

const HOUR = 3600;
const AT_WORK = aWorker({
  ...{phase: 'working', work: 'job:my-job', epoch: 3, usd_per_hour: 6},
  ...{claimed_at: at(HOUR), provider_state: 'READY'},
});
const OTHER = aWorker({...AT_WORK, name: A1});
const LEASE = {...HOLDER, epoch: 3, host_count: 1, members: [HOLDER, {...HOLDER, worker: A1}]};
const TWO_SLICES = aRunningJob({slices: 2, lease: LEASE});
const SERVED = {...NEVER_SERVED, proven_at: at(HOUR)};

/** A world one hour after the start of the attempt. */
async function aWorldWith(jobs: readonly Job[], ...workers: Worker[]): Promise<World> {
  const world = new World(TWO_SLOTS);
  world.now = T0 + HOUR * 1000;
  await world.store.transaction(async tx => {
    for (const job of jobs) jobRecords.set(world.deps, tx, job);
    for (const worker of workers) workerRecords.set(tx, worker);
  });
  return world;
}

const worksIn = (world: World) =>
  Promise.all([A0, A1].map(async name => (await world.worker(name))?.work ?? null));

describe('a tick', () => {
  it('ends a due job, charges it for each slice, and frees them', async () => {
    const world = await aWorldWith([{...TWO_SLICES, due_at: at(60)}], AT_WORK, OTHER);
    await endDueJobs(world.deps);
    const {cause, spent_usd} = await jobIn(world);
    assert.deepEqual([cause, Math.round(spent_usd), await worksIn(world)], ['timeout', 12, [null, null]]);
  });

  it('ends a due job behind a page of jobs whose time was edited', async () => {
    const edited = Array.from({length: 200}, (_, index) => aJob({job: `job-${index}`, due_at: at(1)}));
    const world = await aWorldWith([...edited, aRunningJob({due_at: at(60)})], AT_WORK);
    await endDueJobs(world.deps);
    assert.equal((await jobIn(world)).cause, 'timeout');
  });

  it('ends the attempt of a lease that ran out, charges it, and frees each slice', async () => {
    const world = await aWorldWith([TWO_SLICES], {...AT_WORK, claimed_at: at(0)}, OTHER);
    await endExpiredJobs(world.deps, [A0], SERVED);
    const {attempts, spent_usd} = await jobIn(world);
    assert.deepEqual(
      [attempts[0]?.cause, Math.round(spent_usd), await worksIn(world)],
      ['machine', 12, [null, null]],
    );
  });

  it('leaves the attempt of a worker that claims its lease', async () => {
    const world = await aWorldWith([TWO_SLICES], AT_WORK, OTHER);
    await endExpiredJobs(world.deps, [A0], SERVED);
    assert.equal((await jobIn(world)).status, 'running');
  });

  it('frees a worker whose job was deleted when its lease has run out', async () => {
    const world = await aWorldWith([], {...AT_WORK, claimed_at: at(0)});
    await endExpiredJobs(world.deps, [A0], SERVED);
    assert.deepEqual(await worksIn(world), [null, null]);
  });

  it('ends an attempt that one of its slices has lost, and frees the other', async () => {
    const busy = {...OTHER, work: 'my-run/000', epoch: 1};
    const world = await aWorldWith([TWO_SLICES], AT_WORK, busy);
    const workers = new Map([AT_WORK, busy].map(worker => [worker.name, worker]));
    const held = {workers, unreadable: new Set<string>(), read_at_ms: T0 - (T0 % 3_600_000)};
    await world.store.transaction(async tx =>
      jobRecords.set(world.deps, tx, aRunningJob({job: 'second', lease: {...LEASE, members: []}})),
    );
    await endOrphanedJobs(world.deps, held);
    const {status, attempts} = await jobIn(world);
    assert.deepEqual([status, attempts[0]?.cause], ['scheduled', 'preempted']);
    assert.deepEqual(await worksIn(world), [null, 'my-run/000']);
  });

  it('reports each long attempt of a job once', async () => {
    const job = aRunningJob({long_epoch: 2});
    const world = await aWorldWith([job], AT_WORK);
    world.deps = {...world.deps, config: {...world.deps.config, long_job_s: 600}};
    const report = async () => {
      await reportLongJobs(world.deps, [AT_WORK]);
      return world.logs.filter(({signal}) => signal === 'job-long').length;
    };
    assert.deepEqual([await report(), await report()], [1, 1]);
    await world.store.transaction(async tx =>
      jobRecords.set(world.deps, tx, {...job, started_at: at(HOUR - 60)}),
    );
    assert.equal(await report(), 1, 'the worker has another attempt since');
  });
});
