import assert from 'node:assert/strict';
import {concludeExec, endLostExecs} from '../../../shared/control-plane/execs/end-exec.ts';
import {MOST_OPEN_EXECS} from '../../../shared/domain/records/exec.ts';
import {NO_HOST, type Worker} from '../../../shared/domain/records/worker.ts';
import {saveWorkers} from '../../world/scenes/paused-fleet.ts';
import {A0, A1, TWO_SLOTS} from '../../world/scenes/places.ts';
import {wholeStore} from '../../world/scenes/whole-store.ts';
import {World} from '../../world/world.ts';

async function aWorld(...workers: Partial<Worker>[]): Promise<World> {
  const world = new World(TWO_SLOTS);
  await saveWorkers(world, ...(workers.length > 0 ? workers : [{name: A0}, {name: A1}]));
  return world;
}

const COMMAND = {exec: 'e1', target: 'tpu', argv: ['hostname']};

async function send(world: World, message: string | object): Promise<string> {
  const id = world.exec(message);
  await world.deliverNext('exec');
  return id;
}

const exec = (world: World, id = 'e1') => world.store.get(`execs/${id}`);
const host = (world: World, worker = A0, id = 'e1') => world.store.get(`execs/${id}/hosts/${worker}.0`);
const sender = (worker = A0, incarnation = 2) => ({worker, incarnation, host: 0});
const take = (world: World, worker = A0, id = 'e1') =>
  world.api({action: 'exec', ...sender(worker), exec: id});
const ended = (worker = A0, exit_code: number | null = 0, id = 'e1') => ({
  ...{action: 'exec-end', ...sender(worker), exec: id},
  ...{outcome: 'exited', exit_code, error: null},
});
const beat = (world: World, worker = A0) =>
  world.api({action: 'heartbeat', ...sender(worker), phase: 'idle', lease: null, progress: null});

describe('a command on a pool', () => {
  it('stays with a slice until its last host has ended it', async () => {
    const world = await aWorld({name: A0, host_count: 2});
    await send(world, COMMAND);
    await take(world);
    assert.equal((await world.api(ended())).status, 200);
    assert.deepEqual((await beat(world)).body.execs, ['e1']);
    assert.equal((await exec(world))?.status, 'running');
  });

  it('runs on each host of the pool alone, and ends with the last host and the count of failures', async () => {
    const world = await aWorld({name: A0}, {name: A1}, {name: 'other-us-central1-a-0', pool: 'other'});
    const message_id = await send(world, {...COMMAND, requested_by: 'ada'});
    const created = await exec(world);
    assert.deepEqual(
      [created?.status, created?.hosts, created?.requested_by, created?.message_id, created?.output_path],
      ['running', 2, 'ada', message_id, 'gs://bucket/execs/e1/'],
    );
    assert.equal((await host(world))?.status, 'waiting');
    assert.equal((await host(world))?.expire_at, created?.expire_at);
    assert.deepEqual((await beat(world)).body.execs, ['e1']);
    const {body} = await take(world);
    assert.equal(body.action, 'exec');
    const order = body.exec as Record<string, unknown>;
    assert.deepEqual(
      [order.id, order.argv, order.shell, order.timeout_s, order.folder],
      ['e1', ['hostname'], false, 600, `execs/e1/${A0}/0/`],
    );
    assert.equal((await host(world))?.status, 'running');
    assert.equal((await world.api(ended())).status, 200);
    assert.deepEqual((await beat(world)).body.execs, []);
    assert.equal((await exec(world))?.status, 'running');
    await take(world, A1);
    await world.api(ended(A1, 3));
    const {status, hosts, hosts_done, hosts_failed} = (await exec(world)) ?? {};
    assert.deepEqual([status, hosts, hosts_done, hosts_failed], ['done', 2, 2, 1]);
    const failed = await host(world, A1);
    assert.deepEqual(
      [failed?.status, failed?.exit_code, failed?.output_path],
      ['exited', 3, `gs://bucket/execs/e1/${A1}/0/`],
    );
  });

  it('takes the source and the environment of the pool along', async () => {
    const world = await aWorld();
    const source = {bundle: 'b'.repeat(64)};
    world.control({action: 'update', source, environment: {ramfs_dir: '/mnt/ramfs'}});
    await world.deliverNext('control');
    await send(world, COMMAND);
    const order = (await take(world)).body.exec as Record<string, Record<string, unknown>>;
    assert.deepEqual(order.source, source);
    assert.equal(order.environment?.ramfs_dir, '/mnt/ramfs');
    assert.equal(order.source_version, 1);
  });

  it('reaches one worker, or all workers', async () => {
    const world = await aWorld();
    await send(world, {...COMMAND, target: A1});
    await send(world, {...COMMAND, exec: 'e2', target: 'all'});
    assert.equal(await host(world, A0), undefined);
    assert.equal((await exec(world))?.hosts, 1);
    assert.equal((await exec(world, 'e2'))?.hosts, 2);
  });

  it('leaves out workers that are not running', async () => {
    const world = await aWorld({name: A0}, {name: A1, phase: 'creating'});
    await send(world, COMMAND);
    assert.equal((await exec(world))?.hosts, 1);
    assert.equal(await host(world, A1), undefined);
  });
});

describe('a command without a host', () => {
  const cases = [
    {target: 'tpu', reason: /pool "tpu" has no running worker/},
    {target: 'gpu', reason: /there is no pool "gpu"/},
    {target: A1, reason: /there is no worker "tpu-us-central1-a-1"/},
    {target: A0, reason: /worker "tpu-us-central1-a-0" is gone, not running/},
    {target: 'all', reason: /no worker is running/},
  ];
  for (const {target, reason} of cases)
    it(`is rejected with the reason, for target ${target}`, async () => {
      const world = await aWorld({name: A0, phase: 'gone'});
      await send(world, {...COMMAND, target});
      const {status, reason: given, completed_at} = (await exec(world)) ?? {};
      assert.equal(status, 'rejected');
      assert.match(String(given), reason);
      assert.notEqual(completed_at, null);
      assert.ok((await world.timeline('control')).some(text => /Command e1 .* is rejected/.test(text)));
    });
});

describe('a message on topic exec', () => {
  const invalid = [
    ['no JSON', 'ls'],
    ['a text as argv', {...COMMAND, argv: 'ls'}],
    ['an empty argv', {...COMMAND, argv: []}],
    ['a timeout of 0', {...COMMAND, timeout_s: 0}],
    ['a shell with two texts', {...COMMAND, argv: ['ls', 'pwd'], shell: true}],
    ['an unknown key', {...COMMAND, user: 'root'}],
    ['an id with a slash', {...COMMAND, exec: 'a/b'}],
    ['texts that no document holds', {...COMMAND, argv: Array(8).fill('x'.repeat(100_000))}],
    ['a zero byte', {...COMMAND, argv: ['a\0b']}],
  ] as const;
  for (const [name, message] of invalid)
    it(`with ${name} is recorded as rejected and makes no command`, async () => {
      const world = await aWorld();
      const id = await send(world, message);
      const record = await world.store.get(`control/${id}`);
      assert.equal(record?.outcome, 'rejected', String(record?.reason));
      assert.deepEqual(await world.store.query('execs'), []);
      assert.equal(world.queue.length, 0, 'it does not come again');
    });

  it('with the id of another message is rejected, and the first command goes on', async () => {
    const world = await aWorld();
    await send(world, COMMAND);
    const before = await exec(world);
    const id = await send(world, {...COMMAND, argv: ['rm']});
    assert.deepEqual(await exec(world), before);
    assert.match(String((await world.store.get(`control/${id}`))?.reason), /belongs to another command/);
  });

  it('that is delivered again runs on no host twice, also after the end', async () => {
    const world = await aWorld();
    await send(world, COMMAND);
    const message = world.published.at(-1) ?? assert.fail();
    await take(world);
    await world.api(ended());
    const before = await wholeStore(world);
    await world.handle(message);
    assert.deepEqual(await wholeStore(world), before);
    await take(world, A1);
    await world.api(ended(A1));
    const after = await wholeStore(world);
    await world.handle(message);
    assert.deepEqual(await wholeStore(world), after);
  });

  it('whose first delivery died between two batches of workers reaches all of them with the next delivery', async () => {
    const names = Array.from({length: 120}, (_, slot) => `tpu-us-central1-a-${slot}`);
    const world = await aWorld(...names.map(name => ({name})));
    const {store} = world.deps;
    let writes = 0;
    const transaction: typeof store.transaction = work => {
      writes += 1;
      if (writes === 3) throw new Error('the function died');
      return store.transaction(work);
    };
    const whole = world.deps;
    world.deps = {...world.deps, store: {...store, transaction}};
    world.exec(COMMAND);
    await world.deliverNext('exec');
    assert.equal((await exec(world))?.is_assigned, false);
    world.deps = whole;
    await world.deliverAll();
    assert.deepEqual([(await exec(world))?.is_assigned, (await exec(world))?.hosts], [true, 120]);
    for (const name of names) assert.deepEqual((await world.worker(name))?.execs, ['e1'], name);
  });

  it('whose first delivery died between two workers ends when both have run it once', async () => {
    const world = await aWorld();
    await send(world, COMMAND);
    const message = world.published.at(-1) ?? assert.fail();
    const {execs: _, ...other} = (await world.worker(A1)) ?? assert.fail();
    await world.edit('execs/e1', {is_assigned: false, hosts: 0});
    await world.store.transaction(async tx => tx.delete(`execs/e1/hosts/${A1}.0`));
    await saveWorkers(world, {...other, execs: []});
    await take(world);
    await world.api(ended());
    assert.equal((await exec(world))?.status, 'running');
    await world.handle(message);
    assert.deepEqual([(await host(world))?.status, (await host(world, A1))?.status], ['exited', 'waiting']);
    await take(world, A1);
    await world.api(ended(A1));
    assert.deepEqual([(await exec(world))?.status, (await exec(world))?.hosts], ['done', 2]);
  });

  it('that is delivered again reaches no worker that came later', async () => {
    const world = await aWorld({name: A0});
    await send(world, COMMAND);
    await saveWorkers(world, {name: A1});
    await world.handle(world.published.at(-1) ?? assert.fail());
    assert.deepEqual([await host(world, A1), (await world.worker(A1))?.execs], [undefined, []]);
  });

  it('whose only worker ends before it has the command is rejected with the reason', async () => {
    const world = await aWorld({name: A0});
    const {store} = world.deps;
    const query: typeof store.query = async (...of) => {
      const found = await store.query(...of);
      await saveWorkers(world, {name: A0, phase: 'gone'});
      return found;
    };
    world.deps = {...world.deps, store: {...store, query}};
    await send(world, COMMAND);
    const {status, reason} = (await exec(world)) ?? {};
    assert.deepEqual([status, reason], ['rejected', 'the workers of tpu ended before they had the command']);
  });
});

describe('a worker with many open commands', () => {
  it('refuses a further command with the reason', async () => {
    const execs = Array.from({length: MOST_OPEN_EXECS}, (_, index) => `old-${index}`);
    const world = await aWorld({name: A0, execs}, {name: A1});
    await send(world, COMMAND);
    const refused = await host(world);
    assert.equal(refused?.status, 'refused');
    assert.match(String(refused?.error), /has 20 commands that have not ended/);
    assert.ok(refused?.ended_at);
    assert.deepEqual((await world.worker(A0))?.execs, execs);
    await take(world, A1);
    await world.api(ended(A1));
    assert.deepEqual([(await exec(world))?.status, (await exec(world))?.hosts_failed], ['done', 1]);
  });

  it('ends a command that every worker refuses', async () => {
    const execs = Array.from({length: MOST_OPEN_EXECS}, (_, index) => `old-${index}`);
    const world = await aWorld({name: A0, execs});
    await send(world, COMMAND);
    assert.deepEqual([(await exec(world))?.status, (await exec(world))?.hosts_failed], ['done', 1]);
  });
});

describe('a command whose last report died before it ended the command', () => {
  const ways = {
    'the report when it comes again': (world: World) => world.api(ended()),
    'a tick': (world: World) => world.tick(),
    'two calls at once, with one event': ({deps}: World) =>
      Promise.all([concludeExec(deps, 'e1'), concludeExec(deps, 'e1')]),
  };
  for (const [name, end] of Object.entries(ways))
    it(`is ended by ${name}`, async () => {
      const world = await aWorld({name: A0});
      await send(world, COMMAND);
      await take(world);
      await world.api(ended());
      await world.edit('execs/e1', {status: 'running', completed_at: null});
      await end(world);
      assert.equal((await exec(world))?.status, 'done');
      const ends = (await world.timeline('control')).filter(text => /Command e1 has ended/.test(text));
      assert.equal(ends.length, 2);
    });
});

describe('a host without an answer', () => {
  it('is lost after the deadline, and the command ends', async () => {
    const world = await aWorld({name: A0, heartbeat_at: null});
    await send(world, {...COMMAND, timeout_s: 30});
    await world.deliverAll();
    world.now += 400_000;
    assert.equal((await take(world)).body.action, 'none', 'too late to start');
    await world.tick();
    const lost = await host(world);
    assert.equal(lost?.status, 'lost');
    assert.match(String(lost?.error), /no answer before the deadline|is not running any more/);
    assert.deepEqual([(await exec(world))?.status, (await exec(world))?.hosts_failed], ['done', 1]);
    assert.deepEqual((await world.worker(A0))?.execs, []);
    assert.equal((await world.api(ended())).status, 200, 'a late report changes nothing');
    assert.equal((await host(world))?.status, 'lost');
  });

  it('is lost when its worker ends, long before the deadline', async () => {
    const world = await aWorld({name: A0}, {name: A1});
    await send(world, {...COMMAND, timeout_s: 80_000});
    await take(world, A1);
    await saveWorkers(world, {name: A0, incarnation: 3, execs: []});
    await world.tick();
    assert.equal((await host(world))?.status, 'lost');
    assert.match(String((await host(world))?.error), /incarnation 2, is not running any more/);
    assert.deepEqual(
      (await world.worker(A1))?.execs ?? [],
      (await host(world, A1))?.status === 'lost' ? [] : ['e1'],
    );
  });
});

describe('a tick that finds a host without an answer', () => {
  const OVERDUE = {deadline_at: '2020-01-01T00:00:00.000Z'};

  it('leaves a host at work whose worker the tick has read before', async () => {
    const world = await aWorld({name: A0});
    await send(world, COMMAND);
    await endLostExecs(world.deps, new Map());
    assert.deepEqual([(await host(world))?.status, (await world.worker(A0))?.execs], ['waiting', ['e1']]);
  });

  it('leaves the end that the host reports in the meantime', async () => {
    const world = await aWorld({name: A0});
    await send(world, COMMAND);
    await take(world);
    await world.edit('execs/e1', OVERDUE);
    const {store} = world.deps;
    const deps = {...world.deps};
    const transaction: typeof store.transaction = async work => {
      await world.api(ended());
      return store.transaction(work);
    };
    await endLostExecs({...deps, store: {...store, transaction}}, new Map());
    assert.deepEqual([(await host(world))?.status, (await exec(world))?.hosts_failed], ['exited', 0]);
  });

  it('ends an overdue command in spite of a host with an invalid document', async () => {
    const world = await aWorld();
    await send(world, COMMAND);
    await world.edit(`execs/e1/hosts/${A0}.0`, {incarnation: 'two'});
    await world.edit('execs/e1', OVERDUE);
    await world.tick();
    const {status, hosts, hosts_done, hosts_failed} = (await exec(world)) ?? {};
    assert.deepEqual([status, hosts, hosts_done, hosts_failed], ['done', 2, 1, 2]);
  });
});

describe('the next incarnation of a worker', () => {
  it('begins without commands, names and a source', async () => {
    const world = await aWorld({name: A0, execs: ['e1'], hosts: {0: {...NO_HOST, hostname: 'h'}}});
    await saveWorkers(world, {
      name: A0,
      phase: 'gone',
      execs: ['e1'],
      hosts: {0: {...NO_HOST, hostname: 'h'}},
    });
    world.drop('my-run', 0, '{"text": "a"}\n');
    await world.until('a new life', async () => (await world.worker(A0))?.incarnation === 3, 9, 0);
    const {execs, hosts} = (await world.worker(A0)) ?? {};
    assert.deepEqual([execs, hosts], [[], {}]);
  });
});
