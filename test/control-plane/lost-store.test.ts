import assert from 'node:assert/strict';
import {LIST_PRICES} from '../../shared/domain/billing/prices.ts';
import {LOST_AFTER_S} from '../../shared/domain/run/run.ts';
import type {Stored} from '../../shared/ports.ts';
import {someLines} from '../support/agent.ts';
import {shardMetadataOf} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';

const ZONE = 'us-central1-a';
const A0 = `tpu-${ZONE}-0`;
const ONE_SLOT = {GLEANER_ZONES: ZONE, GLEANER_WORKERS_PER_ZONE: '1'};

/** A world with `size` workers in one zone. Each works on its own stream and has stored a shard of it. */
async function aFleet(size: number, settings: Record<string, string> = {}): Promise<World> {
  const world = new World({
    GLEANER_ZONES: ZONE,
    GLEANER_WORKERS_PER_ZONE: String(Math.max(1, size)),
    ...settings,
  });
  for (let index = 0; index < size; index++) world.drop('my-run', index, someLines(400, String(index)));
  const hasShard = async (_: unknown, index: number) =>
    ((await world.stream('my-run', String(index).padStart(3, '0')))?.total_shards ?? 0) > 0;
  const stored = () => Promise.all(Array.from({length: size}, hasShard));
  await world.until('a shard of each', async () => (await stored()).every(is => is), 20, 1);
  return world;
}

/** One worker that has stored some shards of a long stream. */
async function aWorkingWorld(): Promise<World> {
  const world = new World(ONE_SLOT);
  world.drop('my-run', 0, someLines(40));
  const stored = async () => (await world.stream('my-run', '000'))?.total_shards ?? 0;
  await world.until('some shards', async () => (await stored()) >= 3, 20, 1);
  return world;
}

/** A world that has accepted stream my-run/000, and a way to store a shard of it of any epoch: two samples a shard. */
async function anAcceptedStream(): Promise<{world: World; store: (shard: number, epoch: number) => void}> {
  const world = new World(ONE_SLOT);
  world.drop('my-run', 0, someLines(20));
  await world.deliverAll();
  const {spec_hash} = (await world.run('my-run')) ?? {};
  const {crc32c} = (await world.stream('my-run', '000')) ?? {};
  const store = (shard: number, epoch: number) => {
    const [first, last] = [shard * 2 - 2, shard * 2 - 1];
    const range = {first_sample: String(first), last_sample: String(last), samples: '2', rejected: '0'};
    const about = {run: 'my-run', stream: '000', shard: String(shard), epoch: String(epoch), final: 'false'};
    const origin = {spec_hash: String(spec_hash), stream_crc32c: String(crc32c)};
    const lines = someLines(20)
      .split('\n')
      .slice(first, last + 1)
      .join('\n');
    const metadata = shardMetadataOf({...about, ...range, ...origin});
    world.objects.put(`activations/my-run/tpu_0/shard_000${shard}.safetensors`, lines, metadata);
  };
  return {world, store};
}

function alerts(world: World): string[] {
  return world.logs.filter(({message}) => /have no document/.test(message)).map(({message}) => message);
}

describe('a Store that is empty', () => {
  it('under no node makes none: the runs wait for a person', async () => {
    const world = await aFleet(1);
    world.control({action: 'stop', run: 'my-run'});
    world.drop('other', 0, someLines(4));
    await world.until(
      'one shard',
      async () => ((await world.stream('other', '000'))?.total_shards ?? 0) > 0,
      20,
      1,
    );
    world.tpus.nodes.clear();
    world.settle();
    await world.wipe();
    world.tickerOn = true;
    const made = world.tpus.made.length;
    await world.untilAsleep();
    assert.deepEqual([(await world.run('other'))?.status, world.tpus.made.length], ['paused', made]);
    assert.deepEqual(alerts(world), []);
  });

  for (const size of [2, 20])
    it(`under ${size} living nodes is an alert, and they go after an hour`, async () => {
      const world = await aFleet(size);
      await world.wipe();
      await world.minutes(59, 0);
      assert.equal(world.tpus.nodes.size, size);
      const [alert, ...more] = alerts(world);
      assert.match(
        alert ?? '',
        new RegExp(
          `^${size} of the ${size} nodes in ${ZONE} have no document, for \\$[\\d.]+ an hour.*gleaner rebuild`,
        ),
      );
      assert.deepEqual(
        [more, (await world.timeline('worker')).filter(text => text === alert)],
        [[], [alert]],
      );
      await world.untilAsleep(9);
      assert.deepEqual(await world.store.get(`zones/${ZONE}`).then(zone => zone?.orphans), null);
      assert.deepEqual([world.tpus.made.length, (await world.run('my-run'))?.status], [size, 'paused']);
      await world.resume('my-run');
      await world.until('work again', () => world.agents.size === size, 9, 1);
      assert.ok(world.tpus.made.includes(`${A0}#2`), 'the next life has the next number');
    });

  it('under 20 living nodes is mended by a rebuild, which waits until they are gone', async () => {
    const world = await aFleet(20);
    await world.wipe();
    await world.tick();
    const id = world.control({action: 'rebuild'});
    await world.deliverAll();
    assert.equal(await world.store.get(`control/${id}`), undefined);
    assert.ok(world.logs.some(({message}) => /20 nodes without a document are being deleted/.test(message)));
    assert.deepEqual(new Set(Object.values(world.tpus.states())), new Set(['DELETING']));
    await world.minutes(3);
    assert.equal((await world.store.get(`control/${id}`))?.outcome, 'applied');
    assert.deepEqual([world.tpus.nodes.size, (await world.run('my-run'))?.status], [0, 'paused']);
  });

  it('under 20 nodes keeps them for the hour, though a later list shows one', async () => {
    const world = await aFleet(20);
    await world.wipe();
    await world.tick();
    const {list} = world.deps.tpus;
    world.deps.tpus.list = async () => {
      const {tpus, unreachable} = await list();
      return {tpus: tpus.filter(({name}) => name === A0), unreachable};
    };
    await world.minutes(5, 0);
    world.deps.tpus.list = list;
    await world.minutes(50, 0);
    assert.equal(world.tpus.nodes.size, 20);
    await world.untilAsleep(15);
  });

  it('under 10 nodes lets them go after the hour, though a list in between shows none', async () => {
    const world = await aFleet(10);
    await world.wipe();
    await world.minutes(30, 0);
    world.tpus.omitted.add(ZONE);
    await world.minutes(1, 0);
    world.tpus.omitted.clear();
    await world.minutes(25, 0);
    assert.equal(world.tpus.nodes.size, 10);
    await world.untilAsleep(15);
    assert.equal(world.tpus.made.length, 10);
  });

  it('under 10 nodes keeps them for as long as the month pays for them', async () => {
    const usd_per_minute = (LIST_PRICES.v5litepod?.spot_usd ?? Number.NaN) / 60;
    const ceiling = 10 * 30 * usd_per_minute;
    const world = await aFleet(10, {GLEANER_MAX_BUDGET_USD: String(ceiling)});
    await world.store.transaction(async tx => {
      for (const {path} of await world.store.query('workers')) tx.delete(path);
    });
    await world.minutes(15, 0);
    assert.equal(world.tpus.nodes.size, 10);
    await world.untilAsleep(45);
    const spending = (await world.store.get('system/spending'))?.months as Record<string, number>;
    const spent = Object.values(spending).reduce((sum, usd) => sum + usd, 0);
    assert.ok(spent > 0.5 * ceiling && spent <= ceiling, `${spent} of ${ceiling}`);
  });

  it('under nodes makes no more than GLEANER_MAX_WORKERS with them', async () => {
    const world = await aFleet(2, {GLEANER_MAX_WORKERS: '2'});
    await world.wipe();
    world.redeploy({GLEANER_ZONES: 'europe-west4-b'});
    for (const index of [0, 1]) world.drop('next', index, someLines(40));
    for (let minute = 0; minute < 10; minute++) {
      await world.minute(1);
      assert.ok(world.tpus.nodes.size <= 2, JSON.stringify(world.tpus.states()));
    }
  });

  it('of its workers within a tick costs no node that the tick knew', async () => {
    const world = new World({GLEANER_ZONES: ZONE, GLEANER_WORKERS_PER_ZONE: '2'});
    for (const index of [0, 1]) world.drop('my-run', index, someLines(4));
    await world.deliverAll();
    world.settle();
    const {ping} = world.deps;
    world.deps.ping = async () => {
      const workers = await world.store.query('workers');
      assert.deepEqual(
        workers.map(({data}) => data.phase),
        ['creating', 'creating'],
      );
      await world.store.transaction(async tx => workers.forEach(({path}) => void tx.delete(path)));
      return ping();
    };
    await world.tick();
    world.deps.ping = ping;
    assert.deepEqual(await world.store.query('workers'), []);
    await world.minutes(50, 0);
    assert.deepEqual([alerts(world).length, world.tpus.nodes.size], [1, 2]);
  });

  it('of one document of 20 costs that node alone, at once', async () => {
    const world = await aFleet(20);
    await world.store.transaction(async tx => tx.delete(`workers/${A0}`));
    await world.tick();
    assert.deepEqual([alerts(world), (await world.worker(A0))?.phase], [[], 'deleting']);
    await world.until('its next life', () => world.agents.get(A0)?.incarnation === 2, 9, 1);
    assert.equal(world.tpus.nodes.size, 20);
  });

  it('concludes nothing of nodes that cannot be listed', async () => {
    const world = await aFleet(2);
    await world.wipe();
    await world.tick();
    const {list} = world.deps.tpus;
    world.deps.tpus.list = async () => ({tpus: [], unreachable: [ZONE]});
    await world.minutes(70, 0);
    world.deps.tpus.list = list;
    assert.equal(world.tpus.nodes.size, 2);
    assert.notEqual((await world.store.get(`zones/${ZONE}`))?.orphans, null);
    await world.untilAsleep(9);
  });

  it('lets a worker store its shard in hand, then wait, and exit when its node goes', async () => {
    const world = await aFleet(2);
    const agent = world.agent(A0);
    await world.wipe();
    const from = {worker: A0, incarnation: agent.incarnation, host: 0};
    const beat = {action: 'heartbeat', ...from, phase: 'running', lease: agent.lease, progress: null};
    const ask = {action: 'lease', ...from};
    const answers = async () => [(await world.api(beat)).body.action, (await world.api(ask)).body.action];
    assert.deepEqual(await answers(), ['drain', 'wait']);
    world.control({action: 'rebuild'});
    await world.deliverAll();
    assert.deepEqual(await answers(), ['exit', 'exit']);
  });
});

describe('a run document that is made of a run with output', () => {
  it('is paused where its manifest is older than an hour, though it has no shard', async () => {
    for (const [age_s, status] of [
      [LOST_AFTER_S - 60, 'active'],
      [LOST_AFTER_S + 60, 'paused'],
    ] as const) {
      const world = new World(ONE_SLOT);
      world.tpus.soldOut.add(ZONE);
      world.drop('my-run', 0, someLines(4));
      await world.deliverAll();
      await world.wipe();
      world.now += age_s * 1000;
      await world.tick();
      assert.equal((await world.run('my-run'))?.status, status, `after ${age_s} s`);
    }
  });

  it('of an earlier deployment waits with the stream that was added to it, until resume', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(5));
    await world.untilAsleep();
    await world.wipe();
    world.drop('my-run', 1, someLines(3, 'b'));
    await world.untilAsleep();
    const {status, streams_pending, streams_completed} = (await world.run('my-run')) ?? {};
    assert.deepEqual([status, streams_pending, streams_completed], ['paused', 1, 1]);
    await world.resume('my-run');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '001', someLines(3, 'b'));
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('of the default run looks at no output of other runs', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(5));
    await world.untilAsleep();
    world.drop('default', 0, someLines(5));
    await world.deliverAll();
    assert.equal((await world.run('default'))?.status, 'active');
    await world.untilAsleep();
    await world.wipe();
    world.drop('default', 1, someLines(5, 'b'));
    await world.deliverAll();
    assert.equal((await world.run('default'))?.status, 'paused');
  });

  it('is not needed where the document is there: a stream that is added to a finished run opens it', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(5));
    await world.untilAsleep();
    world.now += 2 * LOST_AFTER_S * 1000;
    world.drop('my-run', 1, someLines(3, 'b'));
    await world.deliverAll();
    assert.equal((await world.run('my-run'))?.status, 'active');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '001', someLines(3, 'b'));
  });

  it('that was deleted by hand drains its workers, and loses nothing that was stored', async () => {
    const world = await aWorkingWorld();
    await world.store.transaction(async tx => tx.delete('runs/my-run'));
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'paused');
    await world.resume('my-run');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(40));
  });
});

describe('a Store that was restored from an older backup', () => {
  const COLLECTIONS = [
    'runs',
    'workers',
    'zones',
    'pools',
    'runs/my-run/streams',
    'runs/my-run/streams/000/shards',
  ];

  async function backUp(world: World): Promise<Stored[]> {
    return (await Promise.all(COLLECTIONS.map(collection => world.store.query(collection)))).flat();
  }

  it('blocks a stream whose later shards no lease explains, until a rebuild counts them', async () => {
    const world = await aWorkingWorld();
    const backup = await backUp(world);
    world.control({action: 'recreate', worker: A0});
    const later = async () => (await world.objects.list('activations/my-run/tpu_0/')).at(-1)?.metadata.epoch;
    await world.until('a shard of the next lease', async () => (await later()) === '2', 20, 1);
    await world.wipe();
    await world.store.transaction(async tx => {
      for (const {path, data} of backup) tx.set(path, data);
    });
    await world.untilAsleep();
    const blocked = await world.stream('my-run', '000');
    assert.match(blocked?.last_error ?? '', /has epoch 2, and 1 is the largest that was granted/);
    assert.deepEqual([blocked?.status, (await world.run('my-run'))?.status], ['failed', 'failed']);
    world.control({action: 'rebuild', run: 'my-run'});
    await world.deliverAll();
    assert.deepEqual(
      [(await world.stream('my-run', '000'))?.epoch, (await world.run('my-run'))?.status],
      [2, 'active'],
    );
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(40));
    assert.ok(world.tpus.made.includes(`${A0}#3`), world.tpus.made.join());
  });

  it('keeps its 10 nodes, whose documents are those of earlier incarnations, for the hour', async () => {
    const world = await aFleet(10);
    const backup = await backUp(world);
    for (const {id} of await world.store.query('workers')) world.control({action: 'recreate', worker: id});
    await world.minutes(8, 1);
    assert.ok([...world.agents.values()].every(({incarnation}) => incarnation === 2));
    await world.wipe();
    await world.store.transaction(async tx => {
      for (const {path, data} of backup) tx.set(path, data);
    });
    const agent = world.agent(A0);
    const from = {worker: A0, incarnation: agent.incarnation, host: 0};
    assert.equal((await world.api({action: 'lease', ...from})).body.action, 'wait');
    await world.minutes(55, 0);
    assert.deepEqual([world.tpus.nodes.size, alerts(world).length], [10, 1]);
    await world.untilAsleep(20);
    assert.equal(world.tpus.nodes.size, 0);
  });
});

describe('a stream whose document is made of shards, one of them unreadable', () => {
  it('is granted above the epochs of the others once that shard is deleted and the stream tried again', async () => {
    const {world, store} = await anAcceptedStream();
    await world.wipe();
    world.queue.length = 0;
    store(1, 4);
    store(2, 4);
    store(3, 1_000_001);
    await world.resume('my-run');
    assert.deepEqual([(await world.stream('my-run', '000'))?.status], ['failed']);
    await world.objects.delete('activations/my-run/tpu_0/shard_0003.safetensors');
    world.control({action: 'retry', run: 'my-run', stream: '000'});
    await world.deliverAll();
    const epoch = async () => (await world.stream('my-run', '000'))?.lease?.epoch;
    await world.until('a grant', async () => (await epoch()) === 5, 9, 1);
  });
});

describe('a zombie of a lost database', () => {
  it('that stores a shard of epoch 7 after a rebuild has set 4 blocks its stream until the next rebuild', async () => {
    const {world, store} = await anAcceptedStream();
    await world.wipe();
    store(1, 2);
    store(2, 4);
    world.queue.length = 0;
    world.control({action: 'rebuild', run: 'my-run'});
    await world.deliverAll();
    const seen = async () => {
      const {status, epoch, total_shards} = (await world.stream('my-run', '000')) ?? {};
      return {status, epoch, total_shards};
    };
    assert.deepEqual(await seen(), {status: 'pending', epoch: 4, total_shards: 2});
    store(3, 7);
    await world.deliverAll();
    assert.deepEqual(await seen(), {status: 'failed', epoch: 4, total_shards: 2});
    world.control({action: 'rebuild', run: 'my-run'});
    await world.deliverAll();
    assert.deepEqual(await seen(), {status: 'pending', epoch: 7, total_shards: 3});
    await world.resume('my-run');
    await world.until('a grant', async () => (await world.stream('my-run', '000'))?.lease != null, 9, 1);
    assert.equal((await seen()).epoch, 8);
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
  });
});
