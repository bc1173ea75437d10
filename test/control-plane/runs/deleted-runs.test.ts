/** `delete` of a run that is over: its objects go first, its document last, so no tick, rebuild or drop makes it again halfway. */
import assert from 'node:assert/strict';
import {paths, prefixesOf, stopObject} from '../../../shared/domain/names.ts';
import {send} from '../../world/people.ts';
import {aDoneWorld, documentsOf} from '../../world/scenes/finished-runs.ts';
import {queueJobs} from '../../world/scenes/second-pool.ts';
import {someLines} from '../../world/shard-plan.ts';
import type {World} from '../../world/world.ts';

const DELETE = {action: 'delete', run: 'my-run'};

async function namesOf(world: World, run: string): Promise<string[]> {
  const listed = await Promise.all(prefixesOf(run).map(prefix => world.deps.objects.list(prefix)));
  return listed.flat().map(({name}) => name);
}

/** What no deletion of another run may change. */
async function factsOf(world: World, run: string) {
  const documents = (await documentsOf(world)).filter(([path]) => `${path}/`.startsWith(`runs/${run}/`));
  return {names: await namesOf(world, run), documents};
}

async function assertGone(world: World, run: string): Promise<void> {
  assert.deepEqual(await factsOf(world, run), {names: [], documents: []});
  assert.equal(await world.store.count(`runs/${run}/streams/000/shards`), 0);
  assert.equal(await world.deps.objects.head(stopObject(run)), undefined);
}

describe('a run that a message deletes', () => {
  for (const [run, other] of [
    ['my-run', 'default'],
    ['default', 'my-run'],
  ] as const)
    it(`leaves nothing of ${run}, and all of ${other}`, async () => {
      const world = await aDoneWorld();
      world.drop('default', 0, someLines(4, 'd'));
      world.objects.put(`partials/${run === 'default' ? '' : `${run}/`}tpu_0/a`, 'x');
      await world.untilAsleep();
      const before = await factsOf(world, other);
      const {outcome, reason} = await send(world, {action: 'delete', run});
      assert.equal(outcome, 'applied', reason);
      await assertGone(world, run);
      assert.deepEqual(await factsOf(world, other), before);
      const of = {where: [{field: 'run', op: '==' as const, value: run}]};
      assert.deepEqual(
        (await world.store.query('events', of)).map(({data}) => data.text),
        [`Run ${run} is deleted`],
      );
    });

  it('stays as it is halfway, whatever a tick, a rebuild, a drop or a retry does then, and goes by the same message', async () => {
    const world = await aDoneWorld();
    await send(world, {action: 'stop', run: 'my-run'});
    const {deps} = world;
    let most = 0;
    const gone: string[] = [];
    const objects = {
      ...deps.objects,
      delete: async (name: string) => {
        if (gone.length >= most) throw new Error('Cloud Storage does not answer');
        await deps.objects.delete(name);
        gone.push(name);
      },
    };
    world.deps = {...deps, objects};
    const all = (await namesOf(world, 'my-run')).length;
    assert.ok(all > 5);
    const made = world.tpus.made.length;
    for (; most < all; most++) {
      await send(world, DELETE);
      assert.equal((await world.run('my-run'))?.status, 'stopped');
      await send(world, {action: 'rebuild', run: 'my-run'});
      await send(world, {action: 'retry', run: 'my-run'});
      world.drop('my-run', 7, someLines(2, 'late'));
      await world.minutes(2);
      assert.equal((await world.run('my-run'))?.status, 'stopped');
      world.objects.delete('datasets/my-run/stream_007.jsonl');
    }
    most = Number.POSITIVE_INFINITY;
    await world.untilAsleep();
    await assertGone(world, 'my-run');
    assert.ok(
      gone.findLastIndex(name => name.startsWith('datasets/')) <
        gone.findIndex(name => name.startsWith('act')),
    );
    assert.equal(world.tpus.made.length, made, 'no TPU came for it');
  });

  it('may begin again under its name', async () => {
    const world = await aDoneWorld();
    await send(world, {action: 'stop', run: 'my-run'});
    await send(world, DELETE);
    world.drop('my-run', 0, someLines(6, 'new'));
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed');
    await world.assertStoredOnce('my-run', '000', someLines(6, 'new'));
  });

  it('goes though its run.json was never valid', async () => {
    const world = await aDoneWorld();
    world.objects.put('datasets/typo/run.json', '{"layer": 3}');
    world.drop('typo', 0, someLines(1));
    await world.deliverAll();
    assert.equal((await world.run('typo'))?.status, 'failed');
    await send(world, {action: 'delete', run: 'typo'});
    await assertGone(world, 'typo');
    assert.deepEqual(await world.timeline('rejected'), []);
  });

  for (const [name, prepare, says] of [
    [
      'it is active',
      (world: World) => world.drop('my-run', 3, someLines(9, 'c')),
      /is active.*gleaner run stop my-run/,
    ],
    [
      'it is paused',
      async (world: World) => {
        world.drop('my-run', 3, someLines(9, 'c'));
        await send(world, {action: 'pause', run: 'my-run'});
      },
      /is paused.*gleaner run stop my-run/,
    ],
    [
      'a TPU works on it',
      async (world: World) => {
        world.drop('busy', 0, someLines(90, 'c'));
        await world.until('work', async () => (await world.stream('busy', '000'))?.status === 'in_progress');
        const [{id, data} = {id: '', data: {}}] = await world.store.query('workers');
        await world.edit(paths.worker(id), {...data, work: 'my-run/000'});
      },
      /still works on run "my-run"/,
    ],
    [
      'a job reads it',
      async (world: World) => {
        await queueJobs(world, 'tpu', 'reader');
        await world.edit(paths.job('jobs', 'reader'), {inputs: ['run:my-run']});
      },
      /job reader reads run "my-run".*gleaner jobs cancel reader/,
    ],
  ] as const)
    it(`is refused: ${name}`, async () => {
      const world = await aDoneWorld();
      await prepare(world);
      await world.deliverAll();
      const names = await namesOf(world, 'my-run');
      const {outcome, reason} = await send(world, DELETE);
      assert.deepEqual([outcome, await namesOf(world, 'my-run')], ['rejected', names]);
      assert.match(reason, says);
    });
});
