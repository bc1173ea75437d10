/** A lost database under living nodes. */
import assert from 'node:assert/strict';
import {LIST_PRICES} from '../../../shared/domain/billing/list-prices.ts';
import {aStoringFleet, orphanAlerts} from '../../world/scenes/lost-store.ts';
import {A0, ZONE} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('an empty database', () => {
  it('without nodes creates none: unfinished runs wait for an operator, and a stop stays', async () => {
    const world = await aStoringFleet(1);
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
    const made = world.tpus.made.length;
    await world.untilAsleep();
    const statuses = [(await world.run('other'))?.status, (await world.run('my-run'))?.status];
    assert.deepEqual([...statuses, world.tpus.made.length], ['paused', 'stopped', made]);
    assert.deepEqual(orphanAlerts(world), []);
  });

  for (const size of [2, 20])
    it(`under ${size} living nodes raises an alert, and deletes them after an hour`, async () => {
      const world = await aStoringFleet(size);
      await world.wipe();
      await world.minutes(59, 0);
      assert.equal(world.tpus.nodes.size, size);
      const [alert, ...more] = orphanAlerts(world);
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
      assert.ok(world.tpus.made.includes(`${A0}#2`), 'the next incarnation has the next number');
    });

  it('under 20 living nodes is made again by a rebuild, which waits until they are gone', async () => {
    const world = await aStoringFleet(20);
    await world.wipe();
    await world.tick();
    const id = await world.order({action: 'rebuild'});
    assert.match(
      String((await world.store.get(`control/${id}`))?.reason),
      /^the rebuild has begun; tasks\/rebuild /,
    );
    const waiting = (await world.store.get('tasks/rebuild')) ?? {};
    assert.match(String(waiting.result), /^20 nodes without a document are being deleted/);
    assert.equal(waiting.status, 'open');
    assert.deepEqual(new Set(Object.values(world.tpus.states())), new Set(['DELETING']));
    await world.minutes(3);
    assert.equal((await world.store.get('tasks/rebuild'))?.status, 'done');
    assert.match(
      String((await world.store.get('tasks/rebuild-my-run'))?.result),
      /^rebuilt my-run: 20 streams/,
    );
    assert.deepEqual([world.tpus.nodes.size, (await world.run('my-run'))?.status], [0, 'paused']);
  });

  for (const [of, zones] of [
    ['the pool', [ZONE]],
    ['the deployment, which its pool has left', ['us-east1-c']],
  ] as const)
    it(`is not rebuilt while a zone of ${of} does not list its nodes`, async () => {
      const world = await aStoringFleet(2);
      await world.wipe();
      world.control({action: 'scale', zones});
      await world.deliverNext('control');
      world.tpus.zone(ZONE).unreachable = true;
      world.control({action: 'rebuild'});
      await world.minutes(3, 0);
      const {status, result} = (await world.store.get('tasks/rebuild')) ?? {};
      assert.equal(status, 'open');
      assert.match(String(result), new RegExp(`${ZONE} did not list its nodes`));
      assert.equal(await world.store.get('tasks/rebuild-my-run'), undefined);
    });

  it('under 20 nodes keeps them for the hour, though a later list shows one of them', async () => {
    const world = await aStoringFleet(20);
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

  it('under 10 nodes deletes them after the hour, though a list in between shows none', async () => {
    const world = await aStoringFleet(10);
    await world.wipe();
    await world.minutes(30, 0);
    world.tpus.zone(ZONE).isOmitted = true;
    await world.minutes(1, 0);
    world.tpus.openZones();
    await world.minutes(25, 0);
    assert.equal(world.tpus.nodes.size, 10);
    await world.untilAsleep(15);
    assert.equal(world.tpus.made.length, 10);
  });

  it('under 10 nodes keeps them for as long as the budget of the month carries them', async () => {
    const usd_per_minute = (LIST_PRICES['v5litepod@us-central1']?.spot_usd ?? Number.NaN) / 60;
    const ceiling = 10 * 30 * usd_per_minute;
    const world = await aStoringFleet(10, {GLEANER_MAX_BUDGET_USD: String(ceiling)});
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

  it('counts the nodes without a document against GLEANER_MAX_WORKERS', async () => {
    const world = await aStoringFleet(2, {GLEANER_MAX_WORKERS: '2'});
    await world.wipe();
    world.redeploy({GLEANER_ZONES: 'europe-west4-b'});
    for (const index of [0, 1]) world.drop('next', index, someLines(40));
    for (let minute = 0; minute < 10; minute++) {
      await world.minute(1);
      assert.ok(world.tpus.nodes.size <= 2, JSON.stringify(world.tpus.states()));
    }
  });

  it('of workers, emptied within a tick, ends no node that the tick knew', async () => {
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
    assert.deepEqual([orphanAlerts(world).length, world.tpus.nodes.size], [1, 2]);
  });

  it('of one worker among 20 ends that node alone, at once', async () => {
    const world = await aStoringFleet(20);
    await world.store.transaction(async tx => tx.delete(`workers/${A0}`));
    await world.tick();
    assert.deepEqual([orphanAlerts(world), (await world.worker(A0))?.phase], [[], 'deleting']);
    await world.until('its next life', () => world.agents.get(A0)?.incarnation === 2, 9, 1);
    assert.equal(world.tpus.nodes.size, 20);
  });

  it('concludes nothing about nodes that cannot be listed', async () => {
    const world = await aStoringFleet(2);
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

  it('lets a worker store the shard in hand, has it wait, and ends it with its node', async () => {
    const world = await aStoringFleet(2);
    const agent = world.agent(A0);
    await world.wipe();
    const from = {worker: A0, incarnation: agent.incarnation, host: 0};
    const beat = {action: 'heartbeat', ...from, phase: 'running', lease: agent.lease, progress: null};
    const ask = {action: 'lease', ...from, loaded: null};
    const answers = async () => [(await world.api(beat)).body.action, (await world.api(ask)).body.action];
    assert.deepEqual(await answers(), ['drain', 'wait']);
    await world.order({action: 'rebuild'});
    assert.deepEqual(await answers(), ['exit', 'exit']);
  });
});
