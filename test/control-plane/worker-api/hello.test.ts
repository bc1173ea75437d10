import assert from 'node:assert/strict';
import {workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {secretHash} from '../../../shared/control-plane/worker-api/authenticate.ts';
import {asHost, secretOf} from '../../world/bus.ts';
import {assertRecovered, aWorkingWorld, aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {A0, ONE_SLOT} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

/** A world whose only node exists, and whose agent has not spoken. */
async function aBootingWorld(): Promise<World> {
  const world = aWorldWithAStream(2);
  await world.tick();
  await world.deliverAll();
  world.settleTpus();
  return world;
}

const ticketIn = (world: World) => String(world.tpus.node(A0).metadata['gleaner-ticket']);
const hello = (ticket: string, incarnation = 1, host = 0) => ({
  action: 'hello',
  worker: A0,
  incarnation,
  host,
  ticket,
});
const OTHER_SECRET = 'f'.repeat(64);
const secretsIn = async (world: World) => (await world.worker(A0))?.host_secrets;

describe('the hello of a host', () => {
  it('binds the hash of its secret to its incarnation, and says nothing about its life', async () => {
    const world = await aBootingWorld();
    assert.deepEqual(await secretsIn(world), {});
    assert.equal((await world.api(hello(ticketIn(world)))).body.action, 'continue');
    const {host_secrets, heartbeat_at, hello_at} = (await world.worker(A0)) ?? {};
    assert.deepEqual(host_secrets, {0: secretHash(secretOf(A0, 1))});
    assert.deepEqual([heartbeat_at, hello_at], [null, null]);
  });

  for (const host of [1, 2, 999_999_999])
    it(`is refused for host ${host}, which its node does not have, before and after the hello of host 0`, async () => {
      const world = await aBootingWorld();
      const ticket = ticketIn(world);
      assert.equal((await world.api(hello(ticket, 1, host))).status, 403);
      await world.api(hello(ticket));
      const {status, body} = await world.api(hello(ticket, 1, host));
      assert.deepEqual([status, body.reason], [403, `the node of ${A0} has no host ${host}`]);
      assert.deepEqual(Object.keys((await secretsIn(world)) ?? {}), ['0']);
    });

  it('is answered alike at every boot of the host, also after a change of the key', async () => {
    const world = await aBootingWorld();
    const ticket = ticketIn(world);
    await world.api(hello(ticket));
    world.redeploy({GLEANER_TICKET_KEY: 'n'.repeat(32)});
    assert.deepEqual((await world.api(hello(ticket))).body.action, 'continue');
    assert.equal((await world.api(hello(ticket), asHost(OTHER_SECRET))).status, 403);
  });

  for (const secret of ['', 'f'.repeat(63), 'F'.repeat(64), `${'f'.repeat(64)}\n`, undefined])
    it(`is refused with the secret ${JSON.stringify(secret)}, before a document is read`, async () => {
      const world = await aBootingWorld();
      let reads = 0;
      const {store} = world.deps;
      const transaction: typeof store.transaction = work => {
        reads += 1;
        return store.transaction(work);
      };
      world.deps = {...world.deps, store: {...store, transaction}};
      const {'x-gleaner-secret': _, ...bare} = asHost('');
      const headers = secret === undefined ? bare : asHost(secret);
      const {status, body} = await world.api(hello(ticketIn(world)), headers);
      assert.equal(status, 403);
      assert.match(String(body.error), /x-gleaner-secret .* 64 hexadecimal digits/);
      assert.equal(reads, 0);
      assert.deepEqual(await secretsIn(world), {});
    });

  it('has the same ticket after every delivery of the request for its node', async () => {
    const world = await aBootingWorld();
    const ticket = ticketIn(world);
    world.tpus.nodes.delete(A0);
    const create = world.published.find(({topic}) => topic === 'tpu') ?? assert.fail();
    await world.handle(create);
    world.settleTpus();
    assert.equal(ticketIn(world), ticket);
  });

  it('binds nothing while no document knows its incarnation', async () => {
    const world = await aBootingWorld();
    const ticket = ticketIn(world);
    await world.wipe();
    assert.equal((await world.api(hello(ticket))).body.action, 'continue');
    assert.equal(await world.worker(A0), undefined);
  });

  it('ends an agent whose incarnation is over', async () => {
    const world = await aBootingWorld();
    const ticket = ticketIn(world);
    const worker = (await world.worker(A0)) ?? assert.fail();
    await world.store.transaction(async tx => workerRecords.set(tx, {...worker, incarnation: 2}));
    assert.equal((await world.api(hello(ticket))).body.action, 'exit');
    assert.deepEqual(await secretsIn(world), {});
  });
});

describe('a node', () => {
  it('is not requested without the account of the workers and the key of the tickets', async () => {
    const world = new World(ONE_SLOT);
    const {identity} = world.deps.config;
    const bare = {...identity, worker_account: undefined, ticket_key: undefined};
    world.deps = {...world.deps, config: {...world.deps.config, identity: bare}};
    world.drop('my-run', 0, someLines(2));
    await world.tick();
    await world.deliverAll();
    assert.equal(world.tpus.nodes.size, 0);
    const reason = world.logs.find(({message}) => message.includes('Failed to start on-tpu'))?.message ?? '';
    assert.match(reason, /GLEANER_WORKER_SERVICE_ACCOUNT: [\s\S]*GLEANER_TICKET_KEY: /);
    world.deps = {...world.deps, config: {...world.deps.config, identity}};
    await world.untilStoredOnce('my-run', '000', someLines(2));
  });
});

describe('a secret', () => {
  it('ends with its incarnation: the next one says hello of its own', async () => {
    const world = await aWorkingWorld();
    world.tpus.node(A0).state = 'PREEMPTED';
    await world.until('a new life', async () => (await world.worker(A0))?.incarnation === 2, 9, 1);
    assert.deepEqual(await secretsIn(world), {});
    await assertRecovered(world);
  });

  it('is bound again after a database was restored that did not know it, and the work goes on', async () => {
    const world = await aWorkingWorld();
    const worker = (await world.worker(A0)) ?? assert.fail();
    await world.store.transaction(async tx => workerRecords.set(tx, {...worker, host_secrets: {}}));
    await assertRecovered(world);
    assert.deepEqual(world.asked(), [`create ${A0}#1`, `delete ${A0}#1`]);
  });

  it('of another host ends the agent, and its work is recovered', async () => {
    const world = await aWorkingWorld();
    const worker = (await world.worker(A0)) ?? assert.fail();
    const host_secrets = {0: secretHash('a thief was faster')};
    await world.store.transaction(async tx => workerRecords.set(tx, {...worker, host_secrets}));
    await world.minute();
    assert.deepEqual(world.agent(A0).told, ['403']);
    const events = (await world.timeline('worker')).filter(text => /second secret/.test(text));
    assert.equal(events.length, 1);
    assert.match(events[0] ?? '', /Publish recreate for tpu-us-central1-a-0/);
    await assertRecovered(world);
  });

  it('is asked for before the bucket is read for a release', async () => {
    const world = await aWorkingWorld();
    let lists = 0;
    const {objects} = world.deps;
    world.deps = {
      ...world.deps,
      objects: {
        ...objects,
        bucket: objects.bucket,
        list: async () => {
          lists += 1;
          return [];
        },
      },
    };
    const lease = {run: 'my-run', stream: '000', epoch: 1};
    const release = {...hello(''), action: 'release', lease, outcome: 'drained', failure: null};
    assert.equal((await world.api(release, asHost(OTHER_SECRET))).status, 403);
    assert.equal(lists, 0);
  });
});
