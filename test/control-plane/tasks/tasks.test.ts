/** Tasks that are opened again while a delivery works on them, and the tick that a finished task asks for. */
import assert from 'node:assert/strict';
import {runRecords} from '../../../shared/control-plane/documents/documents.ts';
import {
  claimTask,
  publishOpenTasks,
  readTask,
  saveTask,
  startTask,
  type TaskName,
} from '../../../shared/control-plane/documents/tasks.ts';
import {aRun, at} from '../../world/builders.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

describe('a task that is opened again', () => {
  it('keeps its first page when the earlier delivery saves its own page', async () => {
    const {deps, store} = new World();
    const name = {task: 'rebuild', run: 'my-run'} as const;
    await startTask(deps, name);
    const claimed = (await claimTask(deps, name)) ?? assert.fail();
    // The new task is claimed for the same time: only the time of its creation differs.
    await store.transaction(async tx => tx.set('tasks/rebuild-my-run', {...claimed, created_at: at(99)}));
    assert.equal(await saveTask(deps, claimed, {cursor: '"page 2"'}), undefined);
    assert.equal((await readTask(store, name))?.cursor, '');
  });
});

describe('a task that another delivery has claimed', () => {
  it('keeps the cursor of that delivery', async () => {
    const world = new World();
    const name = {task: 'rebuild', run: 'my-run'} as const;
    await startTask(world.deps, name);
    const slow = (await claimTask(world.deps, name)) ?? assert.fail();
    assert.equal(await claimTask(world.deps, name), undefined);
    world.now += 121_000;
    const other = (await claimTask(world.deps, name)) ?? assert.fail();
    await saveTask(world.deps, other, {cursor: '"page 3"'});
    assert.equal(await saveTask(world.deps, slow, {cursor: '"page 2"'}), undefined);
    assert.equal((await readTask(world.store, name))?.cursor, '"page 3"');
  });
});

describe('a task whose delivery died', () => {
  const name = {task: 'resync', run: null} as const;

  it('is published again when its claim is over, and goes on where it was', async () => {
    const world = new World();
    await startTask(world.deps, name);
    const claimed = (await claimTask(world.deps, name)) ?? assert.fail();
    await saveTask(world.deps, claimed, {cursor: '"page 2"'});
    world.queue.length = 0;
    const published = async () => {
      await publishOpenTasks(world.deps);
      return world.queue.splice(0).length;
    };
    world.now += 119_000;
    assert.equal(await published(), 0);
    world.now += 3_600_000;
    assert.equal(await published(), 1);
    assert.equal((await readTask(world.store, name))?.cursor, '"page 2"');
  });

  it('is free for the next delivery as soon as a message opens it again', async () => {
    const world = new World();
    await startTask(world.deps, name);
    assert.ok(await claimTask(world.deps, name));
    await startTask(world.deps, name);
    assert.ok(await claimTask(world.deps, name));
  });
});

describe('a task of another release', () => {
  it('is left to that release', async () => {
    const world = new World();
    const name = {task: 'rebuild', run: 'my-run'} as const;
    await startTask(world.deps, name);
    await world.store.transaction(async tx => {
      const stored = (await tx.get('tasks/rebuild-my-run')) ?? assert.fail();
      tx.set('tasks/totals-my-run', {...stored, task: 'totals'});
      tx.delete('tasks/rebuild-my-run');
    });
    world.queue.length = 0;
    await world.minutes(3);
    assert.equal((await world.store.get('tasks/totals-my-run'))?.status, 'open');
    assert.deepEqual(
      world.logs.filter(({severity}) => severity === 'ERROR'),
      [],
    );
  });
});

describe('a task that cannot go on', () => {
  it('is published by the next tick, and goes on', async () => {
    const world = new World();
    const name = {task: 'resync', run: null} as const;
    await startTask(world.deps, name);
    const {objects} = world.deps;
    const {list} = objects;
    objects.list = () => Promise.reject(new Error('the bucket does not answer'));
    assert.ok(await world.deliverNext('tasks'));
    assert.equal((await readTask(world.store, name))?.result, 'the bucket does not answer');
    objects.list = list;
    await world.tick();
    assert.ok(await world.deliverNext('tasks'));
    assert.equal((await readTask(world.store, name))?.status, 'done');
  });

  it('refuses a rebuild of an ended run whose shards have expired, and of no open run', async () => {
    const results: string[] = [];
    for (const status of ['completed', 'active'] as const) {
      const world = new World();
      const name = {task: 'rebuild', run: 'my-run'} as const;
      const run = aRun({status, expire_days: 1});
      await world.store.transaction(async tx => runRecords.set(tx, run));
      world.now += 2 * 86_400_000;
      await startTask(world.deps, name);
      assert.ok(await world.deliverNext('tasks'));
      results.push((await readTask(world.store, name))?.result ?? '');
    }
    assert.match(results[0] ?? '', /^refused: shards of run my-run have expired since/);
    assert.match(results[1] ?? '', /^refused: there is nothing to rebuild/);
  });
});

describe('a finished task', () => {
  const cases: {name: string; task: TaskName; topics: string[]}[] = [
    {
      name: 'that registered streams asks for a tick',
      task: {task: 'register', run: 'my-run'},
      topics: ['tick'],
    },
    {name: 'that compared the bucket asks for none', task: {task: 'resync', run: null}, topics: []},
  ];
  for (const {name, task, topics} of cases)
    it(name, async () => {
      const world = new World();
      const {run} = task;
      if (run !== null) await world.store.transaction(async tx => runRecords.set(tx, aRun({run})));
      if (task.task === 'register') world.drop('my-run', 0, someLines(2));
      world.queue.length = 0;
      await startTask(world.deps, task);
      assert.ok(await world.deliverNext('tasks'));
      assert.equal((await readTask(world.store, task))?.status, 'done');
      assert.deepEqual(
        world.queue.map(({topic}) => topic),
        topics,
      );
    });
});
