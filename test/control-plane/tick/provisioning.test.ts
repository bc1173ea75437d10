/** Zones and hosts that give less than they are asked for. */
import assert from 'node:assert/strict';
import {assertDone, attemptsOf, aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0, B0, ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const LINES = someLines(12);

describe('a zone that takes its nodes back', () => {
  it('is churning also where no tick saw one of them READY', async () => {
    const world = new World({GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '4'});
    for (let index = 0; index < 4; index++) world.drop('my-run', index, someLines(4));
    world.settle = () => {
      world.settleTpus();
      for (const node of world.tpus.nodes.values()) if (node.state === 'READY') node.state = 'PREEMPTED';
    };
    await world.minutes(25);
    assert.equal(world.tpus.made.length, 4);
  });
});

describe('a zone that does not answer', () => {
  const ONE_EACH = {GLEANER_WORKERS_PER_ZONE: '1', GLEANER_CREATE_S: '900', GLEANER_ASK_AGAIN_S: '180'};

  for (const [slot, hadOne] of [
    ['new', false],
    ['empty', true],
  ] as const)
    it(`keeps no work from the next zone for more than five minutes, where its slot is ${slot}`, async () => {
      const world = new World(ONE_EACH);
      if (hadOne) world.drop('first', 0, LINES);
      await world.untilAsleep();
      const [since, made] = [world.now, world.tpus.made.length];
      world.tpus.zone('us-central1-a').unreachable = true;
      world.drop('my-run', 0, LINES);
      await world.until('the next zone is asked', () => world.tpus.nodes.has(B0), 10, 1);
      assert.ok(world.now - since < 5 * 60_000, `${(world.now - since) / 60_000} min`);
      await world.until('it is done', async () => (await world.run('my-run'))?.status === 'completed');
      world.tpus.openZones();
      await assertDone(world);
      assert.deepEqual(world.tpus.made.slice(made), [`${B0}#1`]);
    });
});

describe('the requests to a zone', () => {
  it('are in the timeline when one is repeated', async () => {
    const world = new World({...ONE_SLOT});
    world.settle = () => {};
    world.drop('my-run', 0, someLines(4));
    await world.deliverAll();
    world.tpus.nodes.clear();
    world.now += 130_000;
    await world.tick();
    const told = (await world.timeline('worker')).join('\n');
    assert.match(told, /does not show: asking again to create it/);
  });

  it('leave their cause and no attempt when one is refused at once', async () => {
    const world = aWorldWithAStream(12);
    world.tpus.zone('us-central1-a').soldOut = true;
    await world.minutes(5);
    const worker = await world.worker(A0);
    assert.match(worker?.last_error ?? '', /^Failed to create .*no capacity in us-central1-a/);
    assert.deepEqual([worker?.incarnation, worker?.refused], [1, true]);
    assert.deepEqual(await attemptsOf(world), []);
  });
});

describe('a host whose chips cannot be opened', () => {
  const failure = {
    kind: 'infrastructure' as const,
    reason: 'Failed to extract stream 000: RuntimeError: TPU initialization failed: open(/dev/vfio/0): busy',
  };

  it('is replaced six times, and its stream is charged nothing', async () => {
    const world = aWorldWithAStream(12);
    for (let life = 1; life <= 6; life++) {
      await world.until(
        `work in life ${life}`,
        () => world.agents.get(A0)?.incarnation === life && world.agent(A0).state === 'working',
        90,
        1,
      );
      world.agent(A0).failure = failure;
      await world.minutes(1);
    }
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([stream?.status, stream?.failures, stream?.faults], ['pending', 0, 0]);
    assert.match(stream?.last_error ?? '', /TPU initialization failed/);
    const [first] = await attemptsOf(world);
    assert.equal(first?.cause_kind, 'broken');
    await assertDone(world);
  });

  it('blocks its zone for half an hour at the third time', async () => {
    // A host that never worked counts, however long it lived.
    const world = aWorldWithAStream(12, {...ONE_SLOT, GLEANER_SHORT_LIFE_S: '1'});
    for (let minute = 0; minute < 30; minute++) {
      for (const agent of world.agents.values()) agent.failure = failure;
      await world.minute(1);
    }
    assert.ok(world.tpus.made.length <= 4, world.tpus.made.join());
    await assertDone(world);
  });
});
