import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {goneStreams, runsAnywhere} from '../../shared/control-plane/runs/gone-streams.ts';
import {describeSurvey, surveyRun} from '../../shared/control-plane/runs/rebuild.ts';
import {CANCELLED} from '../../shared/domain/commands.ts';
import {shardObject} from '../../shared/domain/names.ts';
import type {Document} from '../../shared/ports.ts';
import {someLines} from '../support/agent.ts';
import {World} from '../support/control-plane-harness.ts';

type Frozen = {name: string; spec: {seed: number}; spec_hash: string};
const {frozen}: {frozen: Frozen[]} = JSON.parse(
  readFileSync(new URL('../fixtures/spec-cases.json', import.meta.url), 'utf8'),
);

const ORDERS = 'activations/my-run/orders.json';
const A0 = 'tpu-us-central1-a-0';
const ONE_SLOT = {GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '1'};

/** A world whose database was lost when some of my-run's two streams was stored. */
async function aWipedWorld(): Promise<World> {
  const world = new World(ONE_SLOT);
  world.objects.put('datasets/my-run/run.json', '{"seed": 7, "priority": 3}');
  world.drop('my-run', 0, someLines(20));
  world.drop('my-run', 1, someLines(4, 'b'));
  await world.until(
    'some shards',
    async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) >= 3,
    20,
    1,
  );
  await world.wipe();
  return world;
}

describe('a database that was lost', () => {
  it('is made again from the bucket by one message, and no stored shard is made again', async () => {
    const world = await aWipedWorld();
    const stored = await world.objects.list('activations/my-run/tpu_0/');
    assert.ok(stored.length >= 3 && stored.length < 10);
    world.control({action: 'start', run: 'my-run'});
    await world.deliverAll();
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([stream?.total_shards, stream?.status], [stored.length, 'pending']);
    const run = await world.run('my-run');
    assert.deepEqual([run?.spec?.seed, run?.priority], [7, 3]);
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    await world.assertStoredOnce('my-run', '001', someLines(4, 'b'));
    const after = await world.objects.list('activations/my-run/tpu_0/shard_');
    assert.deepEqual(after.slice(0, stored.length), stored);
  });

  it('makes no node of a life that there was, though nobody can list the nodes at first', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(20));
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    world.control({action: 'recreate', worker: A0});
    await world.until('a second life', () => world.agents.get(A0)?.incarnation === 2, 9, 1);
    await world.minutes(2, 1);
    await world.wipe();
    const {list} = world.deps.tpus;
    world.deps.tpus.list = async () => {
      throw new Error('403 Permission denied');
    };
    await assert.rejects(() => world.tick(), /403/);
    await world.deliverAll();
    world.deps.tpus.list = list;
    await world.untilAsleep();
    await world.resume('my-run');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`, `${A0}#3`]);
  });

  it('is made again by the tick alone, and its runs wait for a person', async () => {
    const world = await aWipedWorld();
    assert.ok(world.tickerOn);
    await world.untilAsleep();
    const {status, reason} = (await world.run('my-run')) ?? {};
    assert.equal(status, 'paused');
    assert.match(reason ?? '', /topics publish control --message='{"action":"resume","run":"my-run"}'$/);
    assert.ok(((await world.stream('my-run', '000'))?.total_shards ?? 0) >= 3);
    await world.resume('my-run');
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    await world.assertStoredOnce('my-run', '001', someLines(4, 'b'));
  });

  it('of a run that was complete costs no TPU', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(5));
    await world.untilAsleep();
    const made = world.tpus.made.length;
    await world.wipe();
    world.control({action: 'start', run: 'my-run'});
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(5));
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.equal(world.tpus.made.length, made);
  });

  it('of a run that was complete is also made again by dropping its stream again', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(5));
    await world.untilAsleep();
    await world.wipe();
    world.drop('my-run', 0, someLines(5));
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed', 'it does not stay active for ever');
    await world.assertStoredOnce('my-run', '000', someLines(5));
  });

  it('does not unfreeze the spec: the manifest counts, whatever run.json says by now', async () => {
    for (const text of ['{"seed": 8}', '{"modle": "x"}', '{']) {
      const world = await aWipedWorld();
      world.objects.put('datasets/my-run/run.json', text);
      world.control({action: 'start', run: 'my-run'});
      await world.untilAsleep();
      assert.equal((await world.run('my-run'))?.spec?.seed, 7);
      await world.assertStoredOnce('my-run', '000', someLines(20));
    }
  });

  it('does not forget which run is the older', async () => {
    const world = new World(ONE_SLOT);
    world.drop('zzz', 0, someLines(40));
    await world.minutes(5);
    world.drop('aaa', 0, someLines(40));
    await world.minutes(2, 0);
    await world.wipe();
    await world.minutes(3, 0);
    const [older, newer] = [await world.run('zzz'), await world.run('aaa')];
    assert.ok(String(older?.created_at) < String(newer?.created_at));
  });

  it('leaves no TPU behind that nobody knows and nobody wants', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(20));
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    await world.objects.delete('datasets/my-run/stream_000.jsonl');
    await world.wipe();
    await world.untilAsleep();
    assert.equal(world.tpus.nodes.size, 0);
  });

  it('makes no second node of a name when a stream is dropped before the first tick', async () => {
    const world = await aWipedWorld();
    world.drop('other', 0, someLines(2));
    await world.deliverAll();
    assert.equal(await world.worker(A0), undefined);
    await world.untilAsleep();
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`]);
    await world.assertStoredOnce('other', '000', someLines(2));
    assert.equal((await world.run('my-run'))?.status, 'paused');
  });

  it('does not mix contents: a stream that was overwritten meanwhile fails by the shards it has', async () => {
    const world = await aWipedWorld();
    world.drop('my-run', 0, someLines(20, 'new'));
    await world.untilAsleep();
    const stream = await world.stream('my-run', '000');
    assert.equal(stream?.status, 'failed');
    assert.match(stream?.last_error ?? '', /shard_0001.safetensors was made from other content/);
  });
});

describe('a database that was lost, and a stream that lies in the bucket more than once', () => {
  const words = {
    nothing: undefined,
    start: {action: 'start', run: 'my-run'},
    rebuild: {action: 'rebuild', run: 'my-run'},
  };
  for (const [word, message] of Object.entries(words)) {
    it(`goes on with the object that its shards are of, and not one that was refused (${word})`, async () => {
      const world = new World(ONE_SLOT);
      world.drop('my-run', 0, someLines(12), '.gz');
      await world.until(
        'some',
        async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) > 1,
        20,
        1,
      );
      world.drop('my-run', 0, someLines(12, 'other'));
      await world.minute(1);
      // Uploaded again as it was, it is the later one of the two.
      world.drop('my-run', 0, someLines(12), '.gz');
      await world.minute(1);
      await world.wipe();
      if (message) world.control(message);
      await world.untilAsleep();
      await world.resume('my-run');
      await world.untilAsleep();
      await world.assertStoredOnce('my-run', '000', someLines(12));
      assert.equal((await world.stream('my-run', '000'))?.object, 'datasets/my-run/stream_000.jsonl.gz');
    });

    for (const suffix of ['', '.gz'])
      it(`stays complete when other content was refused since (${word}, ${suffix})`, async () => {
        const world = new World(ONE_SLOT);
        world.drop('my-run', 0, someLines(6), suffix);
        await world.untilAsleep();
        world.drop('my-run', 0, someLines(6, 'other'));
        await world.minutes(2);
        const made = world.tpus.made.length;
        await world.wipe();
        if (message) world.control(message);
        else await world.deps.ticker.on();
        await world.untilAsleep();
        await world.assertStoredOnce('my-run', '000', someLines(6));
        assert.equal((await world.run('my-run'))?.status, 'completed');
        assert.equal(world.tpus.made.length, made);
      });
  }

  it('is taken from the wrong object that an earlier release registered', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(12), '.gz');
    await world.until(
      'some',
      async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) > 1,
      20,
      1,
    );
    world.drop('my-run', 0, someLines(12, 'other'));
    await world.minute(1);
    const other = await world.objects.head('datasets/my-run/stream_000.jsonl');
    assert.ok(other);
    const {name: object, generation, crc32c} = other;
    await world.store.transaction(async tx => {
      const path = 'runs/my-run/streams/000';
      const wrong = {
        status: 'failed',
        lease: null,
        epoch: 0,
        total_shards: 0,
        last_error: 'made from other content',
      };
      tx.set(path, {...(await tx.get(path)), object, generation, crc32c, ...wrong});
    });
    world.control({action: 'rebuild', run: 'my-run'});
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(12));
  });

  it('is mended under the content that its shards are of, where a function died before it had counted them', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(6));
    await world.untilAsleep();
    const whole = await world.stream('my-run', '000');
    world.drop('my-run', 0, someLines(6, 'other'));
    await world.wipe();
    const {objects} = world.deps;
    const list: typeof objects.list = async (prefix, options) => {
      if (prefix.startsWith('activations/') && (await world.stream('my-run', '000')))
        throw new Error('it died');
      return objects.list(prefix, options);
    };
    world.deps.objects = {...objects, list};
    world.control({action: 'start', run: 'my-run'});
    await world.deliverAll();
    world.deps.objects = objects;
    world.queue.length = 0;
    assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
    world.control({action: 'rebuild', run: 'my-run'});
    await world.deliver();
    const {status, crc32c} = (await world.stream('my-run', '000')) ?? {};
    assert.deepEqual({status, crc32c}, {status: 'completed', crc32c: whole?.crc32c});
  });

  it('is failed when shards of two contents lie in the bucket', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(12));
    await world.until(
      'some',
      async () => ((await world.stream('my-run', '000'))?.total_shards ?? 0) > 1,
      20,
      1,
    );
    world.drop('my-run', 0, someLines(12, 'other'));
    await world.wipe();
    world.control({action: 'rebuild', run: 'my-run'});
    await world.untilAsleep();
    assert.match(String((await world.stream('my-run', '000'))?.last_error), /was made from other content/);
  });
});

describe('what was said', () => {
  /** A world where my-run works, to which something was said before its database was lost. */
  async function aToldWorld(...messages: object[]): Promise<World> {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(20));
    world.drop('my-run', 1, someLines(4, 'b'));
    const stored = async () => (await world.stream('my-run', '000'))?.total_shards ?? 0;
    await world.until('some shards', async () => (await stored()) >= 2, 20, 1);
    for (const message of messages) world.control(message);
    await world.deliverAll();
    await world.minutes(6, 0);
    await world.wipe();
    world.control({action: 'start', run: 'my-run'});
    return world;
  }

  it('stop is final, and what was stored is still counted', async () => {
    const world = await aToldWorld({action: 'stop', run: 'my-run'});
    const made = world.tpus.made.length;
    const stored = await world.objects.list('activations/my-run/tpu_0/shard_');
    assert.ok(stored.length > 0 && stored.length < 10);
    await world.untilAsleep();
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, world.tpus.made.length], ['cancelled', made]);
    assert.equal((await world.stream('my-run', '000'))?.total_shards, stored.length);
    assert.deepEqual(await world.timeline('rejected'), []);
    world.drop('my-run', 2, someLines(2));
    await world.untilAsleep();
    assert.match((await world.timeline('rejected')).join(), /was stopped, and a stop is final/);
    assert.equal(await world.stream('my-run', '002'), undefined);
  });

  it('pause holds until resume, and configure keeps its version', async () => {
    const world = await aToldWorld(
      {action: 'configure', run: 'my-run', priority: 4, budget_usd: 9},
      {action: 'pause', run: 'my-run'},
    );
    world.queue.length = 0;
    await world.tick();
    await world.untilAsleep();
    const {status, priority, budget_usd, version, spent_usd} = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([status, priority, budget_usd, version], ['paused', 4, 9, 1]);
    assert.ok(spent_usd > 0, 'and what it had cost by then');
    world.control({action: 'resume', run: 'my-run'});
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
  });

  it('cancel parks its stream until retry', async () => {
    const world = await aToldWorld({action: 'cancel', run: 'my-run', stream: '000'});
    await world.untilAsleep();
    const cancelled = await world.stream('my-run', '000');
    assert.deepEqual([cancelled?.status, cancelled?.last_error], ['failed', CANCELLED]);
    await world.assertStoredOnce('my-run', '001', someLines(4, 'b'));
    world.control({action: 'retry', run: 'my-run', stream: '000'});
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    await world.wipe();
    world.control({action: 'start', run: 'my-run'});
    await world.untilAsleep();
    assert.equal((await world.stream('my-run', '000'))?.status, 'completed', 'and retry is not forgotten');
  });

  it('delete keeps its TPU away until recreate, and scale keeps what it said', async () => {
    const scale = {action: 'scale', workers_per_zone: 2, provisioning: 'auto'};
    const world = await aToldWorld(scale, {action: 'delete', worker: A0});
    world.queue.length = 0;
    await world.tick();
    assert.equal((await world.store.get('pools/tpu'))?.provisioning, 'auto');
    await world.until('the other slot', () => world.tpus.nodes.has('tpu-us-central1-a-1'), 9, 1);
    assert.deepEqual([world.tpus.nodes.has(A0), (await world.worker(A0))?.held], [false, true]);
    await world.untilAsleep();
    world.control({action: 'recreate', worker: A0});
    await world.deliverAll();
    assert.equal(JSON.parse(world.objects.text('pools/tpu.json')).held.length, 0);
  });

  it('is obeyed by a message that is the first to reach the empty database', async () => {
    const world = await aWipedWorld();
    const id = world.control({action: 'stop', run: 'my-run'});
    await world.deliverAll();
    assert.equal((await world.store.get(`control/${id}`))?.outcome, 'applied');
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'cancelled');
  });

  it('is written where nothing was said before, and only then', async () => {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(2));
    world.control({action: 'start', run: 'my-run'});
    await world.untilAsleep();
    assert.deepEqual([world.objects.names('pools/'), await world.objects.head(ORDERS)], [[], undefined]);
  });

  it('cannot be undone by spoiling what keeps it', async () => {
    const world = await aToldWorld({action: 'stop', run: 'my-run'});
    world.objects.put(ORDERS, '{"status": "active"}');
    await world.untilAsleep();
    const run = await world.run('my-run');
    assert.equal(run?.status, 'failed');
    assert.match(run?.reason ?? '', /orders.json is not valid/);
    assert.deepEqual([...world.tpus.nodes.keys()], []);
  });
});

describe('rebuild', () => {
  const documents = async (world: World) => {
    const runs = await world.store.query('runs');
    const streams = (await Promise.all(runs.map(({path}) => world.store.query(`${path}/streams`)))).flat();
    const shards = (await Promise.all(streams.map(({path}) => world.store.query(`${path}/shards`)))).flat();
    const still = ({path, data}: {path: string; data: object}) => {
      const past = ['created_at', 'updated_at', 'epoch', 'cost_usd', 'spent_usd'];
      return [path, Object.entries(data).filter(([field]) => !past.includes(field))];
    };
    return [...runs, ...streams, ...shards].map(still);
  };

  async function aDoneWorld(): Promise<World> {
    const world = new World(ONE_SLOT);
    world.drop('my-run', 0, someLines(20));
    world.drop('my-run', 1, someLines(5, 'b'));
    world.drop('other', 0, someLines(3, 'c'));
    await world.untilAsleep();
    return world;
  }

  it('makes the documents of every run again as they were, and costs no TPU', async () => {
    const world = await aDoneWorld();
    const before = await documents(world);
    const made = world.tpus.made.length;
    await world.wipe();
    const id = world.control({action: 'rebuild'});
    await world.deliverAll();
    assert.match(String((await world.store.get(`control/${id}`))?.reason), /2 runs .*: my-run, other/);
    await world.untilAsleep();
    assert.deepEqual(await documents(world), before);
    assert.equal(world.tpus.made.length, made);
  });

  const damages: {
    name: string;
    path: string;
    change: (data: Document) => Document | undefined;
    says: RegExp;
  }[] = [
    {
      name: 'a count that is too high',
      path: 'runs/my-run/streams/000',
      change: data => ({...data, total_shards: 99, last_processed_sample_idx: 500}),
      says: /last_processed_sample_idx is 500, and 19 in the bucket/,
    },
    {
      name: 'a stream that says it is not done',
      path: 'runs/my-run/streams/000',
      change: data => ({...data, status: 'failed', last_error: 'somebody wrote this'}),
      says: /it is failed, and its last shard is in the bucket/,
    },
    {
      name: 'a document that nobody can read',
      path: 'runs/my-run/streams/000',
      change: data => ({...data, epoch: 'seven'}),
      says: /1 stream mended \(was broken\)/,
    },
    {
      name: 'a stream without a document',
      path: 'runs/my-run/streams/001',
      change: () => undefined,
      says: /1 stream mended \(was missing\)/,
    },
    {
      name: 'a run that nobody can read',
      path: 'runs/my-run',
      change: data => ({...data, status: 'asleep'}),
      says: /all right/,
    },
    {
      name: 'a shard without a document',
      path: 'runs/my-run/streams/000/shards/0003',
      change: () => undefined,
      says: /9 shards have a document/,
    },
    {
      name: 'a shard that never was',
      path: 'runs/my-run/streams/000/shards/0011',
      change: () => ({shard: 11}),
      says: /11 shards have a document/,
    },
  ];
  for (const {name, path, change, says} of damages)
    it(`mends ${name}, and leaves the rest alone`, async () => {
      const world = await aDoneWorld();
      const before = await documents(world);
      await world.store.transaction(async tx => {
        const damaged = change((await tx.get(path)) ?? {});
        if (damaged) tx.set(path, damaged);
        else tx.delete(path);
      });
      const id = world.control({action: 'rebuild', run: 'my-run'});
      await world.deliverAll();
      const record = await world.store.get(`control/${id}`);
      assert.equal(record?.outcome, 'applied', String(record?.reason));
      assert.match(`${record?.reason} ${await world.timeline('stream')}`, says);
      await world.untilAsleep();
      assert.deepEqual(await documents(world), before);
    });

  it('takes back what the bucket has no more, and that alone is computed again', async () => {
    const world = await aDoneWorld();
    await world.objects.delete('activations/my-run/tpu_0/shard_0010.safetensors');
    const kept = await world.objects.list('activations/my-run/tpu_0/shard_');
    world.control({action: 'rebuild', run: 'my-run'});
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    const after = await world.objects.list('activations/my-run/tpu_0/shard_');
    assert.deepEqual(after.slice(0, kept.length), kept);
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('does not put an older count over a newer one that came meanwhile', async () => {
    const world = await aDoneWorld();
    const path = 'runs/my-run/streams/000';
    const right = (await world.store.get(path)) ?? assert.fail();
    const set = (data: Document) => world.store.transaction(async tx => tx.set(path, data));
    await set({...right, total_shards: 3});
    const {list} = world.deps.objects;
    let listings = 0;
    world.deps.objects.list = async (prefix, options) => {
      const found = await list(prefix, options);
      // The second is what is mended by: the last shard was not there yet, and was counted before the mending.
      if (!prefix.endsWith('/tpu_0/') || ++listings !== 2) return found;
      await set({...right, updated_at: new Date(world.now).toISOString()});
      return found.filter(({name}) => !name.includes('shard_0010'));
    };
    world.control({action: 'rebuild', run: 'my-run'});
    await world.deliverAll();
    const after = await world.stream('my-run', '000');
    assert.deepEqual([listings, after?.total_shards, after?.status], [3, 10, 'completed']);
  });

  it('does not count shards for content that replaced theirs after the listing', async () => {
    const world = await aWipedWorld();
    const {list} = world.deps.objects;
    world.deps.objects.list = async (prefix, options) => {
      const found = await list(prefix, options);
      if (prefix === 'datasets/my-run/') {
        world.deps.objects.list = list;
        world.drop('my-run', 0, someLines(9, 'other'));
        await world.deliverAll();
      }
      return found;
    };
    const shards = (await list('activations/my-run/tpu_0/shard_')).length;
    world.control({action: 'rebuild', run: 'my-run'});
    await world.deliverAll();
    const stream = await world.stream('my-run', '000');
    assert.deepEqual([shards > 0, stream?.total_shards, stream?.status], [true, 0, 'failed']);
    assert.match(stream?.last_error ?? '', /was made from other content of its stream/);
  });

  it('of a run in mid-work disturbs nobody, however often it is asked for', async () => {
    const world = await aWipedWorld();
    for (let minute = 0; minute < 12; minute++) {
      world.control({action: 'rebuild', run: 'my-run'});
      await world.minute(1);
      if (minute === 0) await world.resume('my-run');
    }
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    await world.assertStoredOnce('my-run', '001', someLines(4, 'b'));
    assert.deepEqual(world.tpus.made, [`${A0}#1`, `${A0}#2`]);
  });

  it('of a run that the bucket does not have is refused by name', async () => {
    const world = new World(ONE_SLOT);
    const id = world.control({action: 'rebuild', run: 'no-run'});
    await world.deliverAll();
    const record = await world.store.get(`control/${id}`);
    assert.deepEqual(
      [record?.outcome, record?.reason],
      ['rejected', 'there is nothing to rebuild: datasets/no-run/ holds no stream'],
    );
  });

  it('is found by a survey that names the missing shard and counts those behind it', async () => {
    const world = await aDoneWorld();
    await world.objects.delete('activations/my-run/tpu_0/shard_0002.safetensors');
    const survey = await surveyRun(world.deps, 'my-run');
    const [first] = survey;
    assert.deepEqual(
      [first?.finding, first?.stored_shards, first?.why],
      ['different', 9, 'shard 2 is missing; 9 of 10 there'],
    );
    assert.match(describeSurvey('my-run', survey), /^my-run: 2 streams with 12 shards in the bucket; 1 diff/);
  });

  for (const [missing, says] of [
    [[10], 'shard 10 is missing; 9 of 10 there'],
    [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 'shard 1 is missing; 0 of 10 there'],
  ] as const)
    it(`is found by a survey that says "${says}"`, async () => {
      const world = await aDoneWorld();
      for (const shard of missing)
        await world.objects.delete(shardObject('my-run', '000', shard, 'safetensors'));
      const [first] = await surveyRun(world.deps, 'my-run');
      assert.deepEqual([first?.finding, first?.why], ['different', says]);
    });

  for (const [name, forget] of [
    ['its documents', async () => {}],
    ['its manifest and shards', (world: World) => world.wipe()],
  ] as const)
    it(`names the stream whose object is gone from the bucket, and counts its shards, from ${name}`, async () => {
      const world = await aDoneWorld();
      await world.objects.delete('datasets/my-run/stream_000.jsonl');
      await world.objects.delete('datasets/my-run/stream_001.jsonl');
      await forget(world);
      assert.deepEqual(await runsAnywhere(world.deps), ['my-run', 'other']);
      const gone = await goneStreams(world.deps, 'my-run', []);
      assert.deepEqual(
        gone.map(({finding, why, stored_shards}) => [finding, why, stored_shards]),
        [
          ['gone', 'its stream object datasets/my-run/stream_000.jsonl is gone', 10],
          ['gone', 'its stream object datasets/my-run/stream_001.jsonl is gone', 3],
        ],
      );
    });

  it('says which shard is missing of a stream whose object is gone', async () => {
    const world = await aDoneWorld();
    await world.objects.delete('datasets/my-run/stream_000.jsonl');
    const shards = await world.objects.list('activations/my-run/tpu_0/shard_');
    for (const {name} of shards.slice(1, 2)) await world.objects.delete(name);
    const [gone] = await goneStreams(world.deps, 'my-run', []);
    assert.match(gone?.why ?? '', /is gone; shard 2 is missing, 9 of 10 there$/);
  });

  it('finds the runs of every output by one name each', async () => {
    const world = new World(ONE_SLOT);
    for (const name of [
      'tpu_0/shard_0001.safetensors',
      'a/tpu_0/x',
      'a/tpu_1/x',
      'tpua/manifest.json',
      'z/x/y',
    ])
      world.objects.put(`activations/${name}`, 'x');
    world.objects.put('activations/manifest.json', 'x');
    assert.deepEqual(await runsAnywhere(world.deps), ['a', 'default', 'tpua', 'z']);
  });

  it('is only looked for by a survey, which writes nothing', async () => {
    const world = await aDoneWorld();
    await world.store.transaction(async tx => tx.delete('runs/my-run/streams/001'));
    const before = await documents(world);
    const survey = await surveyRun(world.deps, 'my-run');
    assert.deepEqual(
      survey.map(({stream, finding, stored_shards, known_shards}) => [
        stream,
        finding,
        stored_shards,
        known_shards,
      ]),
      [
        ['000', 'right', 10, 10],
        ['001', 'missing', 3, 0],
      ],
    );
    assert.deepEqual([await documents(world), world.queue], [before, []]);
  });
});

describe('a manifest', () => {
  const MANIFEST = 'activations/my-run/manifest.json';

  for (const {name, spec, spec_hash} of frozen)
    it(`of a spec frozen ${name} is taken with its own hash, and stays as it is`, async () => {
      const world = new World(ONE_SLOT);
      world.objects.put(
        MANIFEST,
        JSON.stringify({schema: 'gleaner/1', run: 'my-run', spec, spec_hash}, null, 2),
      );
      world.drop('my-run', 0, someLines(5));
      await world.untilAsleep();
      const run = await world.run('my-run');
      assert.deepEqual([run?.status, run?.spec, run?.spec_hash], ['completed', spec, spec_hash]);
      for (const object of await world.objects.list('activations/my-run/tpu_0/shard_'))
        assert.equal(object.metadata.spec_hash, spec_hash);
      const {result, ...rest} = JSON.parse(world.objects.text(MANIFEST));
      assert.deepEqual(rest, {schema: 'gleaner/1', run: 'my-run', spec, spec_hash});
      assert.equal(result.streams, 1);
    });

  it('of an earlier release says the same as a run.json that this release completes', async () => {
    const world = new World(ONE_SLOT);
    const {spec, spec_hash} = frozen[0] ?? assert.fail();
    world.objects.put(MANIFEST, JSON.stringify({schema: 'gleaner/1', run: 'my-run', spec, spec_hash}));
    world.drop('my-run', 0, someLines(5));
    world.objects.put('datasets/my-run/run.json', '{"tokens": "all", "keep": []}');
    await world.deliverAll();
    assert.deepEqual(await world.timeline('rejected'), []);
    world.objects.put('datasets/my-run/run.json', '{"tokens": "last"}');
    await world.deliverAll();
    assert.match((await world.timeline('rejected')).join(), /was frozen/);
  });

  const [old] = frozen;
  const foreign: {name: string; change: object; says: RegExp}[] = [
    {name: 'of another run', change: {run: 'other'}, says: /is not the manifest of run "my-run"/},
    {
      name: 'of a spec that was changed',
      change: {spec: {...old?.spec, seed: 8}},
      says: /is not the manifest/,
    },
    {name: 'of no spec', change: {spec: 'all of it'}, says: /manifest.json is not valid: spec/},
    {
      name: 'with a key of a later release',
      change: {
        spec: {heads: [0]},
        spec_hash: '08d46a9174ae3577cd76264bd21faecf6da0c2c7b725fa4edf3ec9129d9281bc',
      },
      says: /there is no heads/,
    },
  ];
  for (const {name, change, says} of foreign)
    it(`${name} stops its run by name, and is left as it is`, async () => {
      const world = new World(ONE_SLOT);
      const text = JSON.stringify({schema: 'gleaner/1', run: 'my-run', ...old, ...change});
      world.objects.put(MANIFEST, text);
      world.drop('my-run', 0, someLines(5));
      await world.deliverAll();
      assert.match((await world.run('my-run'))?.reason ?? '', says);
      assert.equal(world.objects.text(MANIFEST), text);
    });
});
