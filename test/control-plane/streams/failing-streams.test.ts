import assert from 'node:assert/strict';
import {
  assertRecovered,
  aWorldWithAShard,
  aWorldWithAStream,
  untilFailed,
} from '../../world/scenes/one-worker.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const IN_PRODUCTION = {GLEANER_HEARTBEAT_S: '60', GLEANER_LEASE_S: '240', GLEANER_SILENT_S: '300'};

describe('a stream that cannot be finished', () => {
  it('fails after three failures with its reason, and the others go on', async () => {
    const world = new World({GLEANER_ZONES: 'us-central1-a'});
    world.drop('my-run', 0, someLines(20));
    world.drop('my-run', 1, someLines(20, 'other'));
    const failure = {kind: 'stream', reason: 'line 3 is too odd'} as const;
    await untilFailed(world, 40, agent => {
      agent.failure = agent.lease?.stream === '000' ? failure : undefined;
    });
    await world.untilAsleep();
    const stream = await world.stream('my-run', '000');
    assert.deepEqual(
      [stream?.status, stream?.failures, stream?.last_error],
      ['failed', 3, 'line 3 is too odd'],
    );
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, run?.reason], ['failed', 'stream 000: line 3 is too odd']);
    await world.assertStoredOnce('my-run', '001', someLines(20, 'other'));
  });

  it('a stream that no machine finishes fails after five machines, and no sixth is created', async () => {
    const world = await aWorldWithAShard();
    const stored = (await world.stream('my-run', '000'))?.total_shards;
    await untilFailed(world, 60, agent => {
      agent.failure = {kind: 'infrastructure', reason: 'Failed to write: the disk is full'};
    });
    await world.untilAsleep();
    const stream = await world.stream('my-run', '000');
    assert.deepEqual(
      [stream?.status, stream?.faults, stream?.failures, stream?.total_shards],
      ['failed', 5, 0, stored],
    );
    assert.match((await world.run('my-run'))?.reason ?? '', /the disk is full/);
    assert.equal(world.tpus.made.length, 5);
  });

  it('fails after five workers that fell silent at work on it, also where leases end before the limit of silence', async () => {
    const world = aWorldWithAStream(20, {...ONE_SLOT, ...IN_PRODUCTION});
    await untilFailed(world, 120, agent => {
      agent.silent ||= agent.state === 'working';
    });
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([stream?.status, stream?.faults, stream?.failures], ['failed', 5, 0]);
    assert.match(stream?.last_error ?? '', /died while working on it: it has said nothing/);
    assert.equal(world.tpus.made.length, 5);
    await world.untilAsleep();
  });

  it('is recorded with a reason that is very long and ends in half a character', async () => {
    for (const length of [3900, 3901]) {
      const world = await aWorldWithAShard();
      const {lease} = world.agent(A0);
      const reason = `${'x'.repeat(length)}${'\u{1F600}'.repeat(5000)}\ud83d`;
      const from = {worker: A0, incarnation: 1, host: 0};
      const failure = {kind: 'stream', reason};
      const answer = await world.api({action: 'release', ...from, lease, outcome: 'failed', failure});
      assert.equal(answer.status, 200);
      assert.equal((await world.stream('my-run', '000'))?.failures, 1);
    }
  });

  it('because of its machine is given to another machine', async () => {
    const world = await aWorldWithAShard();
    world.agent(A0).failure = {kind: 'infrastructure', reason: 'Failed to write: the disk is full'};
    await assertRecovered(world);
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`]);
    const {epoch} = (await world.stream('my-run', '000')) ?? {};
    assert.equal(epoch, 2, 'the machine that failed did not get it again');
  });
});

describe('a completed stream that is uploaded again', () => {
  it('a completed stream that is uploaded again leaves its run completed, even if the function dies before the wake', async () => {
    const world = await aWorldWithAShard();
    await world.untilAsleep();
    world.drop('my-run', 0, someLines(20));
    const {bus} = world.deps;
    world.deps.bus = {publish: () => Promise.reject(new Error('it died'))};
    assert.equal(await world.deliver(), false);
    assert.equal((await world.run('my-run'))?.status, 'completed');
    world.deps.bus = bus;
    await assertRecovered(world);
  });
});

describe('a stream with an invalid shard', () => {
  it('goes on, and the shard is set aside', async () => {
    const world = await aWorldWithAShard();
    const next = ((await world.stream('my-run', '000'))?.total_shards ?? 0) + 1;
    const name = `activations/my-run/tpu_0/shard_${String(next).padStart(4, '0')}.safetensors`;
    const {generation} = world.objects.put(name, 'x', {});
    await world.deliverAll();
    assert.equal(world.text(`set-aside/${name}/${generation}`), 'x');
    assert.match((await world.timeline('stream')).join(), new RegExp(`${name} is set aside as .* goes on`));
    await assertRecovered(world);
  });
});
