import assert from 'node:assert/strict';
import {expireCheckpoints, sweepCheckpoint} from '../../../shared/control-plane/jobs/sweep-checkpoints.ts';
import {aWorldAtWork, deleteJob, jobIn} from '../../world/scenes/jobs.ts';
import type {World} from '../../world/world.ts';

const A0 = 'tpu-us-central1-a-0';
const CODE = {code: 'result = 1'};

/** Stores the objects of a version as an agent does, and reports it. Returns the answer. */
async function store(world: World, version: number, kept: string[] = []) {
  const folder = `checkpoints/my-job/epoch_1/host_0/00000${version}/`;
  const objects = [`${folder}000000-0000`, ...kept];
  world.objects.put(`${folder}000000-0000`, 'x');
  const files = Object.fromEntries(objects.map(object => [object, {pieces: [{object}]}]));
  world.objects.put(`${folder}manifest.json`, JSON.stringify({files}));
  const sizes = {bytes: 1, files: 1, objects: 2};
  const moment = {label: null, is_new: true, from_ms: 0, until_ms: 1};
  return world.agent(A0).storeVersion({version, digest: '0'.repeat(64), ...sizes, ...moment});
}

const namesOf = (world: World) =>
  world.objects
    .list('checkpoints/')
    .map(({name}) => name.replace(/^checkpoints\/my-job\/|\/manifest.json$/g, ''));

describe('the objects of a checkpoint', () => {
  it('stay while one of the two kept versions names them, and are deleted after that', async () => {
    const world = await aWorldAtWork(CODE);
    const first = 'checkpoints/my-job/epoch_1/host_0/000001/000000-0000';
    world.objects.put('checkpoints/my-job/own/step_3/state', 'x');
    assert.equal((await store(world, 1)).status, 200);
    await store(world, 2, [first]);
    await store(world, 3);
    await world.deliverAll();
    const pieces = namesOf(world).filter(name => name.endsWith('0000'));
    assert.equal(pieces.length, 3, 'version 2 needs the first object');
    await store(world, 4);
    world.objects.put('checkpoints/my-job/epoch_1/host_0/000005/000000-0000', 'on its way');
    await world.deliverAll();
    const left = ['000003/000000-0000', '000003', '000004/000000-0000', '000004', '000005/000000-0000'];
    assert.deepEqual(namesOf(world), [...left.map(name => `epoch_1/host_0/${name}`), 'own/step_3/state']);
  });

  it('all stay where a kept manifest is missing', async () => {
    const world = await aWorldAtWork(CODE);
    await store(world, 1);
    await store(world, 2);
    await world.objects.delete('checkpoints/my-job/epoch_1/host_0/000002/manifest.json');
    const before = namesOf(world);
    await assert.rejects(sweepCheckpoint(world.deps, 'my-job'), /000002\/manifest.json is missing/);
    assert.deepEqual(namesOf(world), before);
  });

  it('are refused to an attempt that is over', async () => {
    const world = await aWorldAtWork(CODE);
    const agent = world.agent(A0);
    const {job} = agent;
    await agent.finish({outcome: 'failed', cause: 'exit', error: 'a bug'});
    agent.job = job;
    assert.equal((await store(world, 1)).status, 409);
    assert.equal((await jobIn(world)).checkpoint_state, null);
  });

  it('go with the document of the job, and those of other jobs stay', async () => {
    const world = await aWorldAtWork(CODE);
    await store(world, 1);
    world.objects.put('checkpoints/my-job-2/own/x', 'x');
    world.objects.put('checkpoints/gone/own/x', 'x');
    await world.writeJob('my-job-2', {...CODE, status: 'failed'});
    assert.equal(await expireCheckpoints(world.deps, ''), undefined);
    assert.ok(namesOf(world).every(name => !name.includes('gone')));
    assert.equal(namesOf(world).length, 3);
    await deleteJob(world);
    await expireCheckpoints(world.deps, '');
    assert.deepEqual(namesOf(world), ['checkpoints/my-job-2/own/x']);
  });
});
