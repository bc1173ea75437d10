import assert from 'node:assert/strict';
import {aWorldWithAStream} from '../../world/scenes/one-worker.ts';
import {aPricedRun, ONE_SLOT, SLOT, USD_PER_HOUR, USD_PER_MINUTE} from '../../world/scenes/priced-run.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

/** Run, pool and the one attempt agree that the TPU cost so many hours, or some minutes more. */
async function assertHoursBilled(world: World, hours: number, before_usd = 0): Promise<void> {
  const attempts = await world.store.query(`workers/${SLOT}/attempts`);
  const said = [await world.run('my-run'), await world.store.get('pools/tpu')].map(of => of?.spent_usd);
  assert.deepEqual(
    attempts.map(({data}) => data.cost_usd),
    [said[0]],
    String(said),
  );
  assert.equal(said[0], said[1]);
  const paid_h = (Number(said[0]) - before_usd) / USD_PER_HOUR;
  assert.ok(paid_h >= hours && paid_h < hours + 0.2, `${paid_h} hours`);
}

describe('the bill', () => {
  it('of a finished run equals the cost of its attempts and of its pool', async () => {
    const world = await aPricedRun({});
    await world.untilAsleep();
    const run = (await world.run('my-run')) ?? assert.fail();
    const attempts = await world.store.query('workers/tpu-us-central1-a-0/attempts');
    assert.equal(attempts.length, 1);
    const cost = Number(attempts[0]?.data.cost_usd);
    assert.ok(cost > 5 * USD_PER_MINUTE && cost < 40 * USD_PER_MINUTE, String(cost));
    const pool = await world.store.get('pools/tpu');
    assert.deepEqual([run.spent_usd, pool?.spent_usd], [cost, cost]);
  });

  it('of a TPU that boots for a run goes to the next run when the first has ended', async () => {
    const world = new World({...ONE_SLOT, GLEANER_BOOT_S: '900'});
    world.objects.put('datasets/my-run/run.json', JSON.stringify({priority: 1}));
    world.drop('my-run', 0, someLines(2));
    world.drop('other', 0, someLines(2));
    world.settle = () => world.settleTpus();
    await world.minutes(3);
    const worker = async () => (await world.worker('tpu-us-central1-a-0')) ?? assert.fail();
    assert.deepEqual([(await worker()).phase, (await worker()).charged_to], ['booting', 'my-run']);
    world.control({action: 'stop', run: 'my-run'});
    await world.minutes(2);
    assert.deepEqual([(await worker()).incarnation, (await worker()).charged_to], [1, 'other']);
    assert.ok(
      (await world.timeline('worker')).some(text =>
        /other pays for tpu-us-central1-a-0 now, and .*my-run no longer does$/.test(text),
      ),
    );
  });

  it('of a run includes what is spent after its end', async () => {
    const world = await aPricedRun({});
    await world.until('the end', async () => (await world.run('my-run'))?.status === 'completed', 40);
    const then = (await world.run('my-run')) ?? assert.fail();
    await world.untilAsleep();
    const {cost_usd, spent_usd} = (await world.run('my-run')) ?? assert.fail();
    assert.deepEqual([cost_usd, cost_usd > then.cost_usd], [spent_usd, true]);
  });

  it('of a TPU begins with its creation, where its zone did not answer for hours @full', async () => {
    const world = aWorldWithAStream(2, ONE_SLOT);
    await world.deliverAll();
    world.tpus.zone('us-central1-a').unreachable = true;
    world.settle = () => world.settleTpus();
    await world.minutes(180);
    world.tpus.openZones();
    world.control({action: 'stop', run: 'my-run'});
    await world.untilAsleep(9);
    await assertHoursBilled(world, 3);
  });

  it('of a TPU begins with its creation, where no tick ran for hours', async () => {
    const world = aWorldWithAStream(2, ONE_SLOT);
    await world.deliverAll();
    world.settleTpus();
    world.now += 3 * 3_600_000;
    await world.minutes(1, 0);
    world.control({action: 'stop', run: 'my-run'});
    await world.untilAsleep(9);
    await assertHoursBilled(world, 3);
  });

  it('of a TPU that comes after its slot was gone goes to the run that it was created for', async () => {
    const world = await aPricedRun({});
    const node = structuredClone(world.tpus.node(SLOT));
    await world.untilAsleep();
    const spent = (await world.run('my-run'))?.spent_usd ?? assert.fail();
    world.tpus.nodes.set(SLOT, {...node, state: 'READY', created_at: new Date(world.now).toISOString()});
    world.now += 5 * 3_600_000;
    await world.untilAsleep(9);
    await assertHoursBilled(world, 5, spent);
  });

  for (const [path, change, payer] of [
    ['runs/my-run', {priority: 'high'}, 'run my-run'],
    ['pools/tpu', {version: '1'}, 'the pool'],
    ['system/spending', {months: {'2025-01': 'much'}}, 'the months'],
  ] as const)
    it(`of a life whose payer ${path} is left alone is an alert, and goes to the other payers`, async () => {
      const world = await aPricedRun({});
      await world.minutes(4, 0);
      await world.edit(path, change);
      const before = await world.store.get(path);
      const cost_usd = await costOfLives(world);
      assert.ok(cost_usd > 0);
      assert.deepEqual(await world.store.get(path), before);
      const says = `${cost_usd} USD are not added to the document of ${payer}`;
      const alert = world.logs.find(({message}) => message.includes(says));
      assert.deepEqual([alert?.severity, alert?.signal], ['ERROR', 'document-left-alone']);
      const others = ['runs/my-run', 'pools/tpu'].filter(other => other !== path);
      for (const other of others) assert.equal((await world.store.get(other))?.spent_usd, cost_usd, other);
    });
});

/** Preempts the only machine. Returns the dollars of all attempts. */
async function costOfLives(world: World): Promise<number> {
  world.preempt(SLOT);
  await world.until('the end', async () => (await world.worker(SLOT))?.phase === 'gone', 9, 1);
  const attempts = await world.store.query(`workers/${SLOT}/attempts`);
  return attempts.reduce((sum, {data}) => sum + Number(data.cost_usd), 0);
}
