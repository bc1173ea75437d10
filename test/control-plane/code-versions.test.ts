import assert from 'node:assert/strict';
import {outcomeOf, send} from '../support/control-messages.ts';
import {World} from '../support/control-plane-harness.ts';
import {aWorkingWorld} from '../support/one-worker.ts';
import {A0, A1, ONE_SLOT, TWO_SLOTS} from '../support/places.ts';
import {someLines} from '../support/shard-plan.ts';

const [OLD, NEW] = ['c'.repeat(64), 'd'.repeat(64)];
const bundleOf = async (world: World, name: string) => (await world.worker(name))?.bundle;

function preempt(world: World, name: string): void {
  world.tpus.node(name).state = 'PREEMPTED';
  world.agents.delete(name);
}

async function isPaused(world: World): Promise<boolean> {
  return (await world.run('my-run'))?.status === 'paused';
}

describe('a run', () => {
  it('keeps the worker bundle of its first lease', async () => {
    const world = await aWorkingWorld();
    assert.equal((await world.run('my-run'))?.bundle, OLD);
    assert.equal(await bundleOf(world, A0), OLD);
  });

  it('without a worker of its bundle is paused with the reason, and asks for no TPU', async () => {
    const world = await aWorkingWorld();
    world.redeploy({GLEANER_BUNDLE: NEW});
    preempt(world, A0);
    await world.until('a pause', () => isPaused(world), 9, 1);
    const {reason} = (await world.run('my-run')) ?? {};
    assert.match(String(reason), /of worker bundle cccccccccccc, and bundle dddddddddddd is deployed/);
    assert.match(String(reason), /deploy cccccccccccc again, or publish .*"allow_mixed_code":true/);
    await world.minutes(5);
    assert.deepEqual(world.asked(), [`create ${A0}#1`, `delete ${A0}#1`]);
    assert.ok(world.logs.some(({signal}) => signal === 'run-paused'));
  });

  it('goes on with another bundle after configure and resume', async () => {
    const world = await aWorkingWorld();
    world.redeploy({GLEANER_BUNDLE: NEW});
    preempt(world, A0);
    await world.until('a pause', () => isPaused(world), 9, 1);
    await send(world, {action: 'resume', run: 'my-run'});
    await world.until('a second pause', () => isPaused(world), 3, 1);
    const {outcome} = await send(world, {action: 'configure', run: 'my-run', allow_mixed_code: true});
    assert.equal(outcome, 'applied');
    await send(world, {action: 'resume', run: 'my-run'});
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
    assert.equal((await world.run('my-run'))?.bundle, OLD, 'the bundle of its first lease');
  });

  it('goes on when its bundle is deployed again and it is resumed', async () => {
    const world = await aWorkingWorld();
    world.redeploy({GLEANER_BUNDLE: NEW});
    preempt(world, A0);
    await world.until('a pause', () => isPaused(world), 9, 1);
    world.redeploy({GLEANER_BUNDLE: OLD});
    await send(world, {action: 'resume', run: 'my-run'});
    await world.untilAsleep();
    await world.assertStoredOnce('my-run', '000', someLines(20));
  });

  it('ends on the workers of its bundle that live, however many streams are left, and grows no pool', async () => {
    const world = new World({...TWO_SLOTS, GLEANER_WORKERS_PER_ZONE: '1'});
    world.drop('my-run', 0, someLines(20));
    await world.until('work', () => world.agents.get(A0)?.state === 'working', 9, 1);
    world.redeploy({GLEANER_BUNDLE: NEW});
    world.control({action: 'scale', workers_per_zone: 2});
    world.drop('my-run', 1, someLines(20));
    await world.untilAsleep(90);
    for (const stream of ['000', '001']) await world.assertStoredOnce('my-run', stream, someLines(20));
    assert.deepEqual(
      world.asked().filter(each => each.startsWith('create')),
      [`create ${A0}#1`],
    );
    assert.equal((await world.run('my-run'))?.status, 'completed');
  });

  it('takes allow_mixed_code from its run.json, outside of its frozen spec', async () => {
    const world = new World(ONE_SLOT);
    world.objects.put('datasets/my-run/run.json', JSON.stringify({allow_mixed_code: true}));
    world.drop('my-run', 0, someLines(2));
    await world.deliverAll();
    const run = await world.run('my-run');
    assert.equal(run?.allow_mixed_code, true);
    assert.equal('allow_mixed_code' in (run?.spec ?? {}), false);
  });
});

describe('a worker of an earlier bundle', () => {
  it('that no run accepts is replaced, and the new node has the deployed bundle', async () => {
    const world = new World(TWO_SLOTS);
    for (const index of [0, 1]) world.drop('my-run', index, someLines(40));
    await world.until(
      'work',
      () => [A0, A1].every(name => world.agents.get(name)?.state === 'working'),
      9,
      1,
    );
    world.redeploy({GLEANER_BUNDLE: NEW});
    // A second run begins with the deployed bundle; the first one ends at once.
    for (const index of [0, 1, 2]) world.drop('other', index, someLines(4));
    await send(world, {action: 'stop', run: 'my-run'});
    await world.untilAsleep(60);
    assert.equal((await world.run('other'))?.bundle, NEW);
    assert.equal((await world.run('other'))?.status, 'completed');
    assert.ok(
      (await world.timeline('worker')).some(text => /no run accepts its worker bundle any more/.test(text)),
    );
  });
});

describe('the message configure', () => {
  it('refuses a value of allow_mixed_code that is no boolean', async () => {
    const world = await aWorkingWorld();
    const id = world.control({action: 'configure', run: 'my-run', allow_mixed_code: 'yes'});
    await world.deliverAll();
    assert.match((await outcomeOf(world, id)).reason, /allow_mixed_code/);
  });
});
