import assert from 'node:assert/strict';
import {viewDeployment} from '../../../client/views/deployment.ts';
import {completeSpec, specHash} from '../../../shared/contracts/spec/spec.ts';
import {aConfig} from '../../world/builders.ts';
import {ONE_SLOT} from '../../world/scenes/places.ts';
import {aStoredWorld, MANIFEST} from '../../world/scenes/stored-run.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const SHARD = 'activations/my-run/tpu_0/shard_0001.safetensors';
const CONTRADICTION = {
  object: SHARD,
  found: '12 bytes of crc32c AAAAAA==',
  made: '12 bytes of crc32c BBBBBB==',
};
const SAYS = `${SHARD} exists with 12 bytes of crc32c AAAAAA==, and tpu-us-central1-a-0 made 12 bytes of crc32c BBBBBB==: find out who wrote it`;

async function alertsOf(world: World): Promise<string[]> {
  return (await viewDeployment(world.store, 'jobs', world.now)).alerts;
}

/** The one event of its kind. */
async function eventOf(world: World) {
  const events = await world.store.query('events', {
    where: [{field: 'kind', op: '==', value: 'contradiction'}],
  });
  assert.equal(events.length, 1, JSON.stringify(events));
  return events[0]?.data ?? assert.fail();
}

describe('an object that exists with other bytes', () => {
  it('is one event with both digests, and an alert for a week, however often a worker meets it', async () => {
    const world = new World(ONE_SLOT);
    world.onAgent = agent => {
      agent.failure = {kind: 'infrastructure', reason: 'x', contradiction: CONTRADICTION};
    };
    world.drop('my-run', 0, someLines(5));
    await world.until('two failures', async () => ((await world.stream('my-run', '000'))?.epoch ?? 0) > 1);
    const {object, found, made, run, worker} = await eventOf(world);
    assert.deepEqual({object, found, made}, CONTRADICTION);
    assert.deepEqual([run, worker], ['my-run', 'tpu-us-central1-a-0']);
    assert.ok((await alertsOf(world)).some(text => text.startsWith(SAYS)));
    world.now += 8 * 86_400_000;
    assert.ok(!(await alertsOf(world)).some(text => text.startsWith(SAYS)));
  });

  it('of a job is an event that names the job', async () => {
    const world = new World(ONE_SLOT);
    world.onAgent = agent => {
      agent.jobEnd = {outcome: 'failed', cause: 'machine', error: 'x', contradiction: CONTRADICTION};
    };
    world.control({action: 'submit', job: 'my-job', command: ['true']});
    await world.until('an attempt', async () => (await world.timeline('contradiction')).length > 0);
    const {object, job} = await eventOf(world);
    assert.deepEqual([object, job], [SHARD, 'my-job']);
    assert.ok((await alertsOf(world)).some(text => text.startsWith(SAYS)));
  });

  const manifestOf = (spec: {seed: number}, changes: object = {}) =>
    JSON.stringify({
      ...{schema: 'gleaner/1', run: 'my-run', spec, spec_hash: specHash(spec)},
      ...{placement: completeSpec({}, aConfig()).placement, ...changes},
    });

  it('as the manifest of a run that begins is an event with both hashes', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put(MANIFEST, manifestOf({seed: 8}));
    world.objects.put('datasets/my-run/run.json', '{"tokens": "last"}');
    world.drop('my-run', 0, someLines(5));
    await world.deliverAll();
    const {object, found, made} = await eventOf(world);
    assert.deepEqual([object, found], [MANIFEST, `spec ${specHash({seed: 8})}`]);
    assert.match(String(made), /^spec [0-9a-f]{64}$/);
    assert.notEqual(made, found);
    assert.ok((await alertsOf(world)).some(text => text.startsWith(`${MANIFEST} exists with spec`)));
  });

  it('as a manifest with a forged hash begins no run, and is an event', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put(MANIFEST, manifestOf({seed: 8}, {spec_hash: '0'.repeat(64)}));
    world.drop('my-run', 0, someLines(5));
    await world.deliverAll();
    assert.equal((await world.run('my-run'))?.status, 'failed');
    assert.equal((await eventOf(world)).found, `spec ${'0'.repeat(64)} of run my-run`);
  });

  it('as the manifest of a run that ends gives way to the spec of the run', async () => {
    const world = await aStoredWorld();
    const {spec, spec_hash} = (await world.run('my-run')) ?? assert.fail();
    world.objects.put(MANIFEST, manifestOf({seed: 8}));
    await world.untilAsleep();
    const written = JSON.parse(world.text(MANIFEST));
    assert.deepEqual([written.spec, written.spec_hash], [spec, spec_hash]);
    assert.equal(written.result.unread_streams, 0);
    assert.equal((await eventOf(world)).made, `spec ${spec_hash}`);
  });
});
