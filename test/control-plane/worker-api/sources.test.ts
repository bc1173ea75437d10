import assert from 'node:assert/strict';
import {NO_HOST} from '../../../shared/domain/records/worker.ts';
import {asHost, secretOf} from '../../world/bus.ts';
import {send, sendAlone} from '../../world/people.ts';
import {aWorkingWorld} from '../../world/scenes/one-worker.ts';
import {saveWorkers} from '../../world/scenes/paused-fleet.ts';
import {A0, A1, ONE_SLOT, TWO_SLOTS} from '../../world/scenes/places.ts';
import {wholeStore} from '../../world/scenes/whole-store.ts';
import {World} from '../../world/world.ts';

const BUNDLE = {bundle: 'b'.repeat(64)};
const UPDATE = {action: 'update', pool: 'tpu', source: BUNDLE};
const sender = {worker: A0, incarnation: 2, host: 0};

async function aWorld(...names: string[]): Promise<World> {
  const world = new World(TWO_SLOTS);
  await saveWorkers(world, ...names.map(name => ({name})));
  return world;
}

const beat = (world: World, more: object = {}) =>
  world.api({action: 'heartbeat', ...sender, phase: 'idle', lease: null, progress: null, ...more});

describe('the message update', () => {
  it('reaches every living worker of the pool at its next heartbeat', async () => {
    const names = Array.from({length: 120}, (_, slot) => `tpu-us-central1-a-${slot}`);
    const world = await aWorld(...names);
    await saveWorkers(world, {name: A1, phase: 'gone'});
    assert.equal((await sendAlone(world, UPDATE)).outcome, 'applied');
    for (const name of names)
      assert.equal((await world.worker(name))?.source_version, name === A1 ? 0 : 1, name);
    assert.equal((await beat(world)).body.source_version, 1);
    const {body} = await world.api({action: 'source', ...sender});
    assert.deepEqual([body.action, body.version, body.source, body.bucket], ['source', 1, BUNDLE, 'bucket']);
  });

  it('keeps what changed in a worker since the list of workers was read', async () => {
    const world = await aWorld(A0);
    const {store} = world.deps;
    const query: typeof store.query = async (...of) => {
      const found = await store.query(...of);
      await saveWorkers(world, {name: A0, execs: ['e1']});
      return found;
    };
    world.deps = {...world.deps, store: {...store, query}};
    await sendAlone(world, UPDATE);
    const {source_version, execs} = (await world.worker(A0)) ?? {};
    assert.deepEqual([source_version, execs], [1, ['e1']]);
  });

  it('sent twice is two versions', async () => {
    const world = await aWorld(A0);
    await sendAlone(world, UPDATE);
    await sendAlone(world, {action: 'update'});
    assert.equal((await world.worker(A0))?.source_version, 2);
  });

  it('for a pool that is not there is rejected', async () => {
    const world = await aWorld(A0);
    const {outcome, reason} = await sendAlone(world, {...UPDATE, pool: 'gpu'});
    assert.deepEqual(
      [outcome, reason],
      ['rejected', 'there is no pool "gpu": create it with the action "pool"'],
    );
  });

  it('reaches a worker that is created later, and a worker that it missed, by a tick', async () => {
    const world = new World(ONE_SLOT);
    await send(world, UPDATE);
    world.drop('my-run', 0, '{"text": "a"}\n');
    await world.until('a node', () => world.agents.has(A0), 9, 0);
    assert.equal((await world.worker(A0))?.source_version, 1);
    const worker = (await world.worker(A0)) ?? assert.fail();
    await saveWorkers(world, {...worker, source_version: 0});
    await world.tick();
    assert.equal((await world.worker(A0))?.source_version, 1);
  });
});

describe('a request for the source', () => {
  for (const [name, body, secret] of [
    ['with the secret of another worker', sender, secretOf(A1, 2)],
    ['of another host', {...sender, host: 1}, secretOf(A0, 2)],
    ['of an older incarnation', {...sender, incarnation: 1}, secretOf(A0, 2)],
  ] as const)
    it(`${name} is refused and learns nothing`, async () => {
      const world = await aWorld(A0, A1);
      await sendAlone(world, UPDATE);
      const before = await wholeStore(world);
      const answer = await world.api({action: 'source', ...body}, asHost(secret));
      assert.deepEqual([answer.status, answer.body.source], [403, undefined]);
      assert.deepEqual(await wholeStore(world), before);
    });
});

describe('a report about the source', () => {
  const ran = {
    ...{bundle: null, worker_bundle: 'c'.repeat(64), repo: 'https://example.com/o/r'},
    ...{commit: 'a'.repeat(40), jax_version: '0.4.30', environment: null},
  };
  const report = {version: 1, status: 'ready', ran, error: null};

  it('is kept with its time, and stays when a heartbeat has none', async () => {
    const world = await aWorld(A0);
    await beat(world, {source_report: report});
    const {at: reported_at, ...kept} = (await world.worker(A0))?.source_report ?? assert.fail();
    assert.deepEqual(kept, report);
    assert.ok(reported_at);
    await beat(world);
    assert.equal((await world.worker(A0))?.source_report?.version, 1);
  });

  it('costs no further read: a heartbeat reads and writes one document', async () => {
    const world = await aWorkingWorld();
    const {store} = world.deps;
    const paths: string[] = [];
    const transaction: typeof store.transaction = work =>
      store.transaction(tx =>
        work({
          ...{create: tx.create.bind(tx), delete: tx.delete.bind(tx)},
          get: path => {
            paths.push(`read ${path}`);
            return tx.get(path);
          },
          set: (path, data) => {
            paths.push(`write ${path}`);
            tx.set(path, data);
          },
        }),
      );
    world.deps = {...world.deps, store: {...store, transaction}};
    await world.agent(A0).heartbeat();
    assert.deepEqual(paths, [`read workers/${A0}`, `write workers/${A0}`]);
  });
});

describe('the name of a host', () => {
  const hello = (world: World, more: object) =>
    world.api({action: 'hello', ...sender, ticket: 'T'.repeat(43), ...more});

  it('is stored by a hello, changed by a later hello, and not written again when it is equal', async () => {
    const world = await aWorld(A0);
    await hello(world, {hostname: 'vm-1', address: '10.0.0.1'});
    assert.deepEqual((await world.worker(A0))?.hosts, {
      0: {...NO_HOST, hostname: 'vm-1', address: '10.0.0.1'},
    });
    const before = await wholeStore(world);
    await hello(world, {hostname: 'vm-1', address: '10.0.0.1'});
    await hello(world, {});
    assert.deepEqual(await wholeStore(world), before);
    await hello(world, {address: '10.0.0.2'});
    assert.deepEqual((await world.worker(A0))?.hosts, {
      0: {...NO_HOST, hostname: 'vm-1', address: '10.0.0.2'},
    });
  });
});
