/** Zones that give no node, give no answer or refuse a delete. */
import assert from 'node:assert/strict';
import {TpuError} from '../../../shared/contracts/errors.ts';
import {handleTpuMessage} from '../../../shared/control-plane/workers/tpu-operations.ts';
import type {Limiter} from '../../../shared/domain/records/limiter.ts';
import {assertRecovered, aWorldWithAShard, aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0, B0, ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('a zone without capacity', () => {
  it('is passed over for the next zone, and tried again later', async () => {
    const world = new World();
    world.tpus.zone('us-central1-a').soldOut = true;
    for (const index of [0, 1, 2]) world.drop('my-run', index, someLines(60));
    await world.until('both slots of the other zone work', () => world.agents.size === 2, 9, 1);
    assert.deepEqual([...world.agents.keys()].sort(), [B0, 'tpu-europe-west4-b-1']);
    const refused = await world.worker(A0);
    assert.equal(refused?.phase, 'gone');
    assert.match(refused?.last_error ?? '', /no capacity in us-central1-a/);
    const tries = world.asked().filter(what => what.startsWith(`create ${A0}`)).length;
    world.tpus.openZones();
    await world.until('the zone is back', () => world.agents.has(A0), 9, 1);
    assert.ok(world.asked().filter(what => what.startsWith(`create ${A0}`)).length > tries);
    await world.untilAsleep(120);
    for (const index of [0, 1, 2]) await world.assertStoredOnce('my-run', `00${index}`, someLines(60));
  });

  it('is asked once in a minute or two, and has one event', async () => {
    const world = new World(ONE_SLOT);
    world.tpus.zone('us-central1-a').soldOut = true;
    world.drop('my-run', 0, someLines(2));
    await world.minutes(30);
    const tries = world.asked().length;
    assert.ok(tries >= 14 && tries <= 30, String(tries));
    const refused = (await world.timeline('worker')).filter(text => text.includes('no capacity'));
    assert.equal(refused.length, 1);
    assert.match(refused[0] ?? '', /refused \d\d times since 03:05, next try 03:\d\d$/);
  });

  for (const [what, happens] of [
    ['never shows a node', (world: World) => void world.tpus.nodes.delete(A0)],
    ['shows a node that vanishes while it is made', vanishing],
    ['never finishes a node', unfinished],
  ] as const)
    it(`and accepts each create but ${what} lets other zones go first`, async () => {
      const world = new World({});
      world.drop('my-run', 0, someLines(2));
      const {create} = world.deps.tpus;
      world.deps.tpus.create = async request => {
        const outcome = await create(request);
        if (request.zone === 'us-central1-a') happens(world);
        return outcome;
      };
      await world.until('the other zone works', () => world.agents.has(B0), 12);
      await world.untilStoredOnce('my-run', '000', someLines(2));
      const limiter = (await world.store.get('zones/us-central1-a'))?.limiter as Limiter;
      assert.equal(limiter.state, 'probing');
      assert.match(limiter.reason ?? '', /READY|late/);
    });

  /** The third list finds no node. */
  function vanishing(world: World): void {
    const {list} = world.deps.tpus;
    let lists = 0;
    world.deps.tpus.list = async () => {
      if (++lists === 3) world.tpus.nodes.delete(A0);
      return list();
    };
    unfinished(world);
  }

  function unfinished(world: World): void {
    const settle = world.settleTpus.bind(world);
    world.settleTpus = () => {
      const before = world.tpus.nodes.get(A0)?.state;
      settle();
      const node = world.tpus.nodes.get(A0);
      if (node && before === 'CREATING') node.state = 'CREATING';
    };
  }
});

describe('a zone that gives no answer', () => {
  it('loses no worker', async () => {
    const world = await aWorldWithAShard();
    world.tpus.zone('us-central1-a').unreachable = true;
    await assertStillWorking(world);
    world.tpus.openZones();
    await assertRecovered(world);
    assert.deepEqual(world.tpus.made, [`${A0}#1`]);
  });

  async function assertStillWorking(world: World): Promise<void> {
    await world.minutes(2, 1);
    assert.equal((await world.worker(A0))?.phase, 'working');
  }

  it('blocks no slot: the message that creates a node comes again', async () => {
    const world = aWorldWithAStream(2);
    await world.deliverNext('object');
    await world.tick();
    world.tpus.zone('us-central1-a').unreachable = true;
    const message = {action: 'create', worker: A0, incarnation: 1} as const;
    await assert.rejects(handleTpuMessage(world.deps, message), /does not answer/);
    assert.equal((await world.worker(A0))?.phase, 'creating');
  });

  it('keeps workers in phase deleting until it answers again', async () => {
    const world = await aWorldWithAShard();
    world.control({action: 'stop', run: 'my-run'});
    world.tpus.zone('us-central1-a').unreachable = true;
    await world.minutes(20);
    assert.equal((await world.worker(A0))?.phase, 'deleting');
    world.tpus.openZones();
    await world.untilAsleep();
  });

  it('keeps no stream from the workers of another zone', async () => {
    const world = await aWorldWithAShard({GLEANER_WORKERS_PER_ZONE: '1'});
    world.agent(A0).silent = true;
    world.tpus.zone('us-central1-a').unreachable = true;
    await world.until('the other zone works', () => world.agents.get(B0)?.state === 'working', 30, 1);
    world.tpus.openZones();
    await assertRecovered(world);
  });
});

describe('a list of nodes that fails', () => {
  it('keeps no stop waiting: the worker of the run is deleted all the same', async () => {
    const world = await aWorldWithAShard();
    const {list} = world.deps.tpus;
    world.deps.tpus.list = async () => {
      throw new Error('403 Permission denied');
    };
    await world.order({action: 'stop', run: 'my-run'});
    world.now += 60_000;
    await assert.rejects(() => world.tick(), /403/);
    assert.equal((await world.worker(A0))?.phase, 'deleting');
    world.deps.tpus.list = list;
    await world.untilAsleep();
  });
});

describe('a delete that is refused', () => {
  it('is recorded, and asked for again', async () => {
    const world = await aWorldWithAShard();
    const {delete: remove} = world.deps.tpus;
    world.deps.tpus.delete = async (name, zone) => {
      throw new TpuError('permission', zone, `Failed to delete ${name} in ${zone}: denied`);
    };
    world.control({action: 'stop', run: 'my-run'});
    await world.minutes(6);
    const told = (await world.timeline('worker')).join('\n');
    assert.match(told, /Failed to delete tpu-us-central1-a-0 in us-central1-a: denied/);
    assert.match(told, /is still there: asking again to delete it/);
    world.deps.tpus.delete = remove;
    await world.untilAsleep();
    assert.deepEqual(world.tpus.states(), {});
  });
});
