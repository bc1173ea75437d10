/** What a token of an ended lease can do, and what honest machines keep in spite of the rules against it. */
import assert from 'node:assert/strict';
import {shardMetadataOf} from '../world/builders.ts';
import {aWorkingWorld, aWorldWithAStream} from '../world/scenes/one-worker.ts';
import {A0} from '../world/scenes/places.ts';
import {someLines} from '../world/shard-plan.ts';

const FOLDER = 'activations/my-run/tpu_0/';
const TOKEN_MS = 3_600_000;

describe('a token of an ended lease', () => {
  it('that plants an object again whenever it is set aside delays its stream until it ends', async () => {
    const world = await aWorkingWorld();
    const {total_shards = 0} = (await world.stream('my-run', '000')) ?? {};
    const name = `${FOLDER}shard_000${total_shards + 1}.safetensors`;
    await world.agent(A0).release('drained');
    world.tpus.nodes.delete(A0);
    const from = world.now;
    world.onAgent = agent => {
      const step = agent.step.bind(agent);
      agent.step = async () => {
        if (world.now - from < TOKEN_MS && !world.objects.info(name)) world.objects.put(name, 'x', {});
        await step();
      };
    };
    const status = async () => (await world.stream('my-run', '000'))?.status;
    for (let minute = 0; minute < 240 && (await status()) !== 'completed'; minute++) await world.minute(3);
    await world.untilStoredOnce('my-run', '000', someLines(20));
  });

  it('leaves nothing in the folder of a completed stream', async () => {
    const world = aWorldWithAStream(20);
    await world.untilAsleep();
    for (const name of ['shard_0001.pkl.gz', 'shard_0011.safetensors', 'shard_0002.safetensors.zst'])
      world.objects.put(`${FOLDER}${name}`, 'x', {});
    await world.deliverAll();
    assert.equal(world.objects.names('set-aside/').length, 3);
    await world.assertStoredOnce('my-run', '000', someLines(20));
  });

  it('leaves a later lease an epoch, also where a rebuild finds its object first', async () => {
    const world = await aWorkingWorld();
    const {spec_hash} = (await world.run('my-run')) ?? assert.fail();
    const {crc32c} = (await world.stream('my-run', '000')) ?? assert.fail();
    const onFinalized = world.objects.onFinalized;
    world.objects.onFinalized = () => {};
    const own = {
      stream: '000',
      shard: '9',
      spec_hash: String(spec_hash),
      stream_crc32c: crc32c,
      final: 'false',
    };
    world.objects.put(`${FOLDER}shard_0009.safetensors`, 'x', shardMetadataOf({...own, epoch: '1000000'}));
    world.objects.onFinalized = onFinalized;
    world.control({action: 'rebuild', run: 'my-run'});
    await world.untilStoredOnce('my-run', '000', someLines(20));
  });

  it('of a machine that restarts again and again charges a stream once', async () => {
    const world = aWorldWithAStream(4);
    await world.until('an agent', () => world.agents.get(A0)?.state === 'asking', 9, 1);
    const agent = world.agent(A0);
    for (let tries = 0; tries < 9; tries++) {
      await agent.ask();
      agent.giveUp();
      agent.phase = 'setup';
      await agent.heartbeat();
      agent.phase = 'idle';
    }
    const {status, faults} = (await world.stream('my-run', '000')) ?? {};
    assert.deepEqual({status, faults}, {status: 'pending', faults: 1});
  });

  it('has no report that takes the generated tokens of counted shards', async () => {
    const world = await aWorkingWorld();
    const object = `${FOLDER}generated_0001.jsonl`;
    world.objects.put(object, '{}', {});
    const shards = async () => (await world.stream('my-run', '000'))?.total_shards ?? 0;
    await world.until('two shards', async () => (await shards()) >= 2, 9, 1);
    const contradiction = {object, found: 'a', made: 'b'};
    await world.agent(A0).release('failed', {kind: 'stream', reason: 'x', contradiction});
    await world.deliverAll();
    assert.ok(world.objects.info(object));
  });
});

describe('honest machines', () => {
  it('keep the shards behind a gap of a machine that was lost', async () => {
    const world = aWorldWithAStream(20);
    await world.until('an agent', () => world.agents.get(A0)?.state === 'asking', 9, 1);
    const agent = world.agent(A0);
    await agent.ask();
    const plans = await agent.download();
    assert.ok(Array.isArray(plans));
    for (const plan of plans.slice(1, 8)) await agent.store(plan);
    await world.deliverAll();
    world.tpus.node(A0).state = 'PREEMPTED';
    agent.silent = true;
    await world.untilAsleep();
    assert.deepEqual(world.objects.names('set-aside/'), []);
    await world.assertStoredOnce('my-run', '000', someLines(20));
  });

  it('compute one shard again where one was lost and the run was rebuilt', async () => {
    const world = aWorldWithAStream(20);
    await world.untilAsleep();
    const before = world.objects.list(`${FOLDER}shard_`);
    world.objects.delete(before[1]?.name ?? '');
    world.control({action: 'rebuild', run: 'my-run'});
    await world.untilStoredOnce('my-run', '000', someLines(20));
    const kept = before.filter(({name, generation}) => world.objects.info(name)?.generation === generation);
    assert.deepEqual([kept.length, world.objects.names('set-aside/')], [before.length - 1, []]);
  });

  it('keep their leases where answers were lost', async () => {
    const world = aWorldWithAStream(8);
    await world.until('an agent', () => world.agents.get(A0)?.state === 'asking', 9, 1);
    const agent = world.agent(A0);
    for (let lost = 0; lost < 5; lost++) {
      await agent.ask();
      agent.giveUp();
    }
    await world.untilAsleep();
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
    await world.assertStoredOnce('my-run', '000', someLines(8));
  });

  it('have their shards counted where a run began anew under its name with another spec', async () => {
    const world = aWorldWithAStream(8);
    await world.untilAsleep();
    const shards = await world.store.query('runs/my-run/streams/000/shards');
    await world.store.transaction(async tx => {
      for (const path of ['runs/my-run', 'runs/my-run/streams/000', ...shards.map(({path}) => path)])
        tx.delete(path);
    });
    for (const folder of ['activations/my-run/', 'datasets/my-run/'])
      for (const name of world.objects.names(folder)) world.objects.delete(name);
    await world.deliverAll();
    world.objects.put('datasets/my-run/run.json', JSON.stringify({layers: [0]}));
    world.drop('my-run', 0, someLines(8));
    await world.untilAsleep();
    assert.deepEqual(world.objects.names('set-aside/'), []);
    await world.assertStoredOnce('my-run', '000', someLines(8));
  });
});
