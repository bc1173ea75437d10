/** Nodes for waiting jobs, and for workers with a job. */
import assert from 'node:assert/strict';
import {poolRecords, workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {jobWork} from '../../../shared/domain/names.ts';
import {iso} from '../../../shared/domain/time.ts';
import {A0, ZONE} from '../../world/scenes/places.ts';
import {aWorldWithFast, endJobs, F0, F1, queueJobs} from '../../world/scenes/second-pool.ts';
import {someLines} from '../../world/shard-plan.ts';
import type {World} from '../../world/world.ts';

const nodes = (world: World) => [...world.tpus.nodes.keys()].sort();

/** Gives the job to the worker, or takes it away. */
function work(world: World, name: string, job: string | null): Promise<void> {
  return world.store.transaction(async tx => {
    const worker = await workerRecords.get(tx, name);
    assert.ok(worker);
    const held =
      job === null ? {work: null, epoch: null, phase: 'idle' as const} : {work: jobWork(job), epoch: 1};
    const at = iso(world.now);
    workerRecords.set(tx, {...worker, phase: 'working', ...held, claimed_at: at, progress_at: at});
  });
}

describe('waiting jobs', () => {
  it('get no node of a pool whose name begins the name of theirs', async () => {
    const world = await aWorldWithFast({}, {pool: 'tpu-fast'});
    await queueJobs(world, 'tpu-fast', 'one');
    await world.minutes(3, 0);
    assert.deepEqual(nodes(world), [`tpu-fast-${ZONE}-0`]);
  });

  it('get a node each from their own pool, which shrinks to zero when no job is left', async () => {
    const world = await aWorldWithFast();
    await queueJobs(world, 'fast', 'one', 'two', 'three');
    await world.minutes(3, 0);
    assert.deepEqual(nodes(world), [F0, F1]);
    assert.equal((await world.worker(F0))?.charged_to, '_jobs');
    await endJobs(world, 'one', 'two', 'three');
    await world.until('no node', () => world.tpus.nodes.size === 0, 20, 0);
    const fast = await poolRecords.find(world.store, 'fast', world.deps.config.pool);
    assert.ok((fast?.spent_usd ?? 0) > 0);
    assert.equal(await world.store.get('runs/_jobs'), undefined);
    const attempt = await world.store.get(`workers/${F0}/attempts/000001`);
    assert.deepEqual(Object.keys((attempt?.costs as object) ?? {}), ['_jobs']);
  });

  it('get a node each behind one that is left alone', async () => {
    const world = await aWorldWithFast({}, {workers_per_zone: 12});
    const names = Array.from({length: 12}, (_, index) => `job-${index}`);
    await queueJobs(world, 'fast', ...names);
    await world.edit('jobs/job-0', {timeout: 'long'});
    await world.minutes(3, 0);
    assert.equal(nodes(world).length, 11);
  });

  it('come before the streams of runs', async () => {
    const world = await aWorldWithFast({GLEANER_MAX_WORKERS: '3'});
    await queueJobs(world, 'tpu', 'one');
    world.drop('my-run', 0, someLines(9));
    await world.deliverAll();
    assert.equal((await world.worker(A0))?.charged_to, '_jobs');
  });

  it('that are running keep their node, and the node next to it goes', async () => {
    const world = await aWorldWithFast();
    await queueJobs(world, 'fast', 'one', 'two');
    await world.minutes(3, 0);
    await work(world, F0, 'one');
    await endJobs(world, 'one', 'two');
    await world.until('one node', () => world.tpus.nodes.size === 1, 9, 0);
    assert.deepEqual(nodes(world), [F0]);
  });

  it('that cannot be counted end no node and create none', async () => {
    const world = await aWorldWithFast();
    await queueJobs(world, 'fast', 'one');
    await world.minutes(3, 0);
    await endJobs(world, 'one');
    const {store} = world.deps;
    const {count} = store;
    const failing: typeof count = async (collection, ...rest) => {
      if (collection === 'jobs') throw new Error('the jobs were not counted');
      return count(collection, ...rest);
    };
    world.deps = {...world.deps, store: {...store, count: failing}};
    for (let tick = 0; tick < 3; tick++) await assert.rejects(world.tick(), /the jobs were not counted/);
    assert.deepEqual(nodes(world), [F0]);
    world.deps = {...world.deps, store: {...store, count}};
    await world.until('no node', () => world.tpus.nodes.size === 0, 20, 0);
  });

  it('get no node from a pool that has spent its budget', async () => {
    const world = await aWorldWithFast({}, {budget_usd: 0.01});
    await queueJobs(world, 'fast', 'one');
    await world.minutes(3, 0);
    assert.deepEqual([nodes(world), world.tpus.made], [[], []]);
  });

  it('lose their workers when the budget of their pool is spent', async () => {
    const world = await aWorldWithFast({}, {budget_usd: 0.1});
    await queueJobs(world, 'fast', 'one');
    await world.until('a node', () => world.tpus.nodes.size === 1, 9, 0);
    await world.until('no node', () => world.tpus.nodes.size === 0, 40, 0);
    const fast = await poolRecords.find(world.store, 'fast', world.deps.config.pool);
    assert.ok((fast?.spent_usd ?? 1) <= 0.1);
  });
});
