/** The message `pool`, and `scale` of any pool. */
import assert from 'node:assert/strict';
import {poolRecords, zoneRecords} from '../../../shared/control-plane/documents/documents.ts';
import {OPEN} from '../../../shared/domain/records/limiter.ts';
import type {Zone} from '../../../shared/domain/records/zone.ts';
import {newZone} from '../../../shared/domain/zone/placement.ts';
import {send, sendAlone} from '../../world/people.ts';
import {ONE_SLOT, ZONE} from '../../world/scenes/places.ts';
import {aWorldWithFast, endJobs, FAST, namePool, queueJobs} from '../../world/scenes/second-pool.ts';
import {World} from '../../world/world.ts';

const poolOf = (world: World, name = 'fast') => poolRecords.find(world.store, name, world.deps.config.pool);

describe('the message pool', () => {
  it('creates a pool with the defaults of the deployment', async () => {
    const world = await aWorldWithFast(
      {},
      {source: {repo: 'https://example.com/a/b', branch: 'main'}, poll_s: 2},
    );
    const pool = await poolOf(world);
    assert.deepEqual(
      [pool?.accelerator, pool?.zones, pool?.workers_per_zone, pool?.spot, pool?.provisioning, pool?.poll_s],
      ['v6e-1', [ZONE], 2, true, 'node', 2],
    );
    assert.deepEqual([pool?.source_version, pool?.version, pool?.budget_usd], [1, 1, null]);
  });

  it('changes the settings of a pool, and leaves the others', async () => {
    const world = await aWorldWithFast();
    const {outcome, reason} = await send(world, {
      action: 'pool',
      pool: 'fast',
      workers_per_zone: 3,
      budget_usd: 7,
    });
    assert.equal(outcome, 'applied', reason);
    const pool = await poolOf(world);
    assert.deepEqual(
      [pool?.workers_per_zone, pool?.budget_usd, pool?.zones, pool?.version],
      [3, 7, [ZONE], 2],
    );
    assert.equal((await send(world, FAST)).outcome, 'applied');
  });

  it('creates a pool whose environment alone is version 1 of its source', async () => {
    const world = await aWorldWithFast({}, {environment: {ramfs_dir: '/mnt/ramfs'}});
    const pool = await poolOf(world);
    assert.deepEqual([pool?.source_version, pool?.environment.ramfs_dir], [1, '/mnt/ramfs']);
  });

  it('registers the streams of a run that named the pool before it existed', async () => {
    const world = new World(ONE_SLOT);
    namePool(world, 'my-run', 'fast');
    world.drop('my-run', 0, '{"text": "a"}\n');
    await world.deliverAll();
    assert.equal(await world.stream('my-run', '000'), undefined);
    await send(world, FAST);
    assert.equal((await world.stream('my-run', '000'))?.status, 'pending');
  });

  it('gives a new pool the runtime version of its accelerator', async () => {
    const world = await aWorldWithFast({}, {accelerator: 'v5p-8', runtime_version: undefined});
    assert.equal((await poolOf(world))?.runtime_version, 'v2-alpha-tpuv5');
  });

  it('gives a new pool of instances the image of its accelerator, and a disk', async () => {
    const set = {GLEANER_PROVIDERS: 'tpu-api,compute-engine'};
    const terms = {provider: 'compute-engine', accelerator: 'tpu7x-8', runtime_version: undefined};
    const {provider, runtime_version, disk_gb} = (await poolOf(await aWorldWithFast(set, terms))) ?? {};
    assert.deepEqual(
      [provider, runtime_version, disk_gb],
      ['compute-engine', 'ubuntu-accel-2404-amd64-tpu-tpu7x', 100],
    );
  });

  const refused: {name: string; message: object; says: RegExp; set?: Record<string, string>}[] = [
    {name: 'without an accelerator', message: {accelerator: undefined}, says: /needs accelerator, zones/},
    {
      name: 'with an unknown accelerator',
      message: {accelerator: 'tpu-9'},
      says: /no accelerator "tpu-9": use one of v2-8/,
    },
    {
      name: 'with a runtime version of another generation',
      message: {accelerator: 'v6e-1', runtime_version: 'v2-alpha-tpuv5-lite'},
      says: /"v2-alpha-tpuv5-lite" is not for v6e-1: leave it out, or use v2-alpha-tpuv6e or v6e-ubuntu-2404/,
    },
    {name: 'of another provider', message: {provider: 'compute-engine'}, says: /GLEANER_PROVIDERS/},
    {
      name: 'with more hosts than the deployment allows',
      message: {accelerator: 'v6e-128'},
      says: /"v6e-128" has 32 hosts, and this deployment allows 16 .*GLEANER_MAX_HOSTS/,
    },
    {name: 'larger than the ceiling', message: {workers_per_zone: 101}, says: /GLEANER_MAX_WORKERS/},
    {
      name: 'that exceeds the ceiling together with the other pools',
      message: {},
      set: {GLEANER_MAX_WORKERS: '2'},
      says: /are 2, other pools have 1, and this deployment allows 2/,
    },
    {
      name: 'in a zone that is not allowed',
      message: {zones: ['us-east1-c']},
      set: {GLEANER_ALLOWED_ZONES: ZONE},
      says: /GLEANER_ALLOWED_ZONES/,
    },
    {name: 'with too long a poll_s', message: {poll_s: 400}, says: /half of GLEANER_STALL_S/},
    {
      name: 'with too long a name for its nodes',
      message: {pool: 'a'.repeat(31), zones: [`northamerica-northeast${'1'.repeat(8)}-a`]},
      says: /more than 63 characters/,
    },
    {
      name: 'with a source that needs the internet',
      message: {source: {repo: 'https://example.com/a/b', pr: 1}},
      set: {GLEANER_INTERNET: 'false'},
      says: /the repository .* needs the internet.*code bundle/,
    },
    {
      name: 'without the name of its deployment',
      message: {},
      set: {GLEANER_DEPLOYMENT: 'other', GLEANER_STORE: 'firestore:other'},
      says: /start with other-/,
    },
  ];
  for (const {name, message, set = {}, says} of refused)
    it(`refuses a pool ${name}`, async () => {
      const world = new World({GLEANER_ZONES: ZONE, GLEANER_WORKERS_PER_ZONE: '1', ...set});
      const {outcome, reason} = await send(world, {...FAST, ...message});
      assert.equal(outcome, 'rejected');
      assert.match(reason, says);
      assert.deepEqual(await world.store.query('pools'), []);
    });

  const fixed: {name: string; message: object; says: RegExp}[] = [
    {
      name: 'the accelerator',
      message: {pool: 'fast', accelerator: 'v6e-4'},
      says: /cannot change: create another pool/,
    },
    {name: 'spot', message: {pool: 'fast', spot: false}, says: /cannot change: create another pool/},
    {
      name: 'the accelerator of the own pool',
      message: {pool: 'tpu', accelerator: 'v6e-4'},
      says: /the deployment sets it/,
    },
    {name: 'the source', message: {pool: 'fast', source: {bundle: 'a'.repeat(64)}}, says: /action "update"/},
    {name: 'nothing', message: {pool: 'fast'}, says: /say what to change/},
  ];
  for (const {name, message, says} of fixed)
    it(`does not change ${name} of an existing pool`, async () => {
      const world = await aWorldWithFast();
      const {outcome, reason} = await send(world, {action: 'pool', ...message});
      assert.equal(outcome, 'rejected');
      assert.match(reason, says);
    });
});

describe('the message scale', () => {
  it('goes before the timings of the deployment, which count until then and in a new pool', async () => {
    const world = await aWorldWithFast();
    world.redeploy({GLEANER_POLL_S: '30', GLEANER_JOB_WAIT_S: '900'});
    const timings = async () => {
      const {poll_s, job_wait_s} = await poolRecords.get(world.store, world.deps.config.pool);
      return [poll_s, job_wait_s];
    };
    await send(world, {action: 'scale', workers_per_zone: 2});
    assert.deepEqual(await timings(), [30, 900]);
    await send(world, {action: 'scale', job_wait_s: 5});
    assert.deepEqual(await timings(), [30, 5]);
    await send(world, {...FAST, pool: 'slow'});
    assert.equal((await world.store.get('pools/slow'))?.job_wait_s, 900);
  });

  it('changes any pool, also its poll_s', async () => {
    const world = await aWorldWithFast();
    assert.equal(
      (await send(world, {action: 'scale', pool: 'fast', poll_s: 2, workers_per_zone: 1})).outcome,
      'applied',
    );
    assert.equal((await send(world, {action: 'scale', poll_s: 5})).outcome, 'applied');
    const [fast, own] = [await poolOf(world), await poolOf(world, 'tpu')];
    assert.deepEqual([fast?.poll_s, fast?.workers_per_zone, own?.poll_s], [2, 1, 5]);
  });

  it('counts the slots of the pool itself once against the ceiling', async () => {
    const world = new World({...ONE_SLOT, GLEANER_MAX_WORKERS: '2'});
    assert.equal((await send(world, {action: 'scale', workers_per_zone: 2})).outcome, 'applied');
  });

  it('of one pool strands no stream of another pool', async () => {
    const world = await aWorldWithFast();
    world.objects.put('datasets/my-run/run.json', '{"affinity": "fixed"}');
    world.drop('my-run', 0, '{"text": "a"}\n');
    await world.deliverAll();
    await send(world, {action: 'scale', pool: 'fast', workers_per_zone: 0});
    assert.deepEqual(
      (await world.timeline('run')).filter(text => /streams of run my-run wait/.test(text)),
      [],
    );
  });

  it('of a pool that does not exist names the message that creates it', async () => {
    const {outcome, reason} = await send(new World(), {action: 'scale', pool: 'big', workers_per_zone: 1});
    assert.deepEqual(
      [outcome, reason],
      ['rejected', 'there is no pool "big": create it with the action "pool"'],
    );
  });
});

describe('the message resume of a pool', () => {
  it('opens the zones of the pool that stopped before it', async () => {
    const world = await aWorldWithFast({GLEANER_ZONES: `${ZONE},europe-west4-b`});
    const [before, after] = ['2020-01-01T00:00:00.000Z', '2100-01-01T00:00:00.000Z'];
    const stopped = (zone: string, pool: string | null, since_at: string): Zone => ({
      ...newZone(zone, world.now, pool),
      limiter: {...OPEN, state: 'stopped', cause: 'boots', reason: 'its boots fail', since_at},
    });
    const zones = [
      stopped(ZONE, null, before),
      stopped('europe-west4-b', null, after),
      stopped(ZONE, 'fast', before),
    ];
    await world.store.transaction(async tx => {
      for (const zone of zones) zoneRecords.set(tx, zone);
    });
    assert.equal((await sendAlone(world, {action: 'resume', pool: 'tpu'})).outcome, 'applied');
    const states = zones.map(
      async ({zone, pool}) => (await zoneRecords.get(world.store, zone, pool))?.limiter.state,
    );
    assert.deepEqual(await Promise.all(states), ['open', 'stopped', 'stopped']);
  });
});

describe('the message delete of a pool', () => {
  const DELETE = {action: 'delete', pool: 'fast'};

  it('deletes its documents, and a pool of that name counts on from its last TPUs', async () => {
    const world = await aWorldWithFast();
    world.drop('quick', 0, '{"text": "a"}\n');
    await world.untilAsleep();
    const {outcome, reason} = await send(world, DELETE);
    assert.equal(outcome, 'applied', reason);
    assert.equal(await poolOf(world), undefined);
    const of = {where: [{field: 'pool', op: '==' as const, value: 'fast'}]};
    assert.equal(await world.store.count('zones', of.where), 0);
    const [before] = await world.store.query('workers', of);
    await world.minutes(2);
    await send(world, FAST);
    world.drop('quick', 1, '{"text": "b"}\n');
    await world.untilAsleep();
    const [after] = await world.store.query('workers', of);
    assert.ok(Number(after?.data.incarnation) > Number(before?.data.incarnation));
  });

  for (const [name, pool, prepare, says] of [
    ['no pool has the name', 'faster', () => {}, /there is no pool "faster"/],
    ['it is the deployment’s own', 'tpu', () => {}, /own: `gleaner scale tpu --workers-per-zone 0`/],
    [
      'a run uses it',
      'fast',
      async (world: World) => {
        world.drop('quick', 0, '{"text": "a"}\n');
        await send(world, {action: 'pause', run: 'quick'});
      },
      /run "quick" is paused and uses pool "fast": `gleaner run stop quick`/,
    ],
    [
      'a job waits for it',
      'fast',
      (world: World) => queueJobs(world, 'fast', 'job-1'),
      /`gleaner jobs cancel job-1`/,
    ],
    [
      'it has TPUs',
      'fast',
      async (world: World) => {
        await queueJobs(world, 'fast', 'job-1');
        await world.minutes(2);
        await endJobs(world, 'job-1');
      },
      /still has TPUs, such as fast-.*`gleaner scale fast --workers-per-zone 0`/,
    ],
  ] as const)
    it(`is refused if ${name}`, async () => {
      const world = await aWorldWithFast();
      await prepare(world);
      const {outcome, reason} = await sendAlone(world, {...DELETE, pool});
      assert.deepEqual([outcome, (await poolOf(world)) === undefined], ['rejected', false]);
      assert.match(reason, says);
    });
});
