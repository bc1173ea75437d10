/** Canaries of the silence guard, and the workers that it holds. */
import assert from 'node:assert/strict';
import {
  aFleet,
  firstLives,
  RUN,
  silence,
  silenceGuardOf,
  stopCreates,
  wait,
  waitInSilence,
  workersOf,
} from '../../world/scenes/fleet.ts';
import {type Case, runCases} from '../../world/scenes/fleet-cases.ts';
import {ZONE} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';

const NO_CHURN = {GLEANER_SHORT_LIFE_S: '1'};
const isAmong = (names: readonly {name: string}[]) => (name: string) =>
  names.some(each => each.name === name);

describe('a canary', () => {
  it('comes before the silent workers that wait for it, where streams are fewer than workers', async () => {
    const world = await aFleet(3);
    silence(world);
    await world.until('an end', async () => (await firstLives(world)).length < 3, 9, 0);
    world.control({action: 'cancel', run: RUN, stream: '002'});
    await wait(world, 20);
    assert.equal((await firstLives(world)).length, 0, 'its first word ends the others');
  });

  it('that gets no capacity during a stop of creates is asked for again', async () => {
    const world = await aFleet(10, NO_CHURN);
    await stopCreates(world);
    silence(world);
    world.tpus.zone(ZONE).soldOut = true;
    await wait(world, 8);
    assert.equal((await silenceGuardOf(world))?.bad_verdicts, 0, 'no capacity is no verdict');
    world.tpus.openZones();
    await wait(world, 8);
    assert.ok(world.tpus.made.length >= 12, world.tpus.made.slice(10).join());
  });

  it('that is preempted before it speaks, during a stop of creates, is asked for again', async () => {
    const world = await aFleet(10, NO_CHURN);
    await stopCreates(world);
    silence(world);
    world.isStillborn = () => true;
    await world.until('two canaries', () => world.tpus.made.length === 12, 12, 0);
    for (const node of world.tpus.nodes.values())
      if (node.metadata['gleaner-incarnation'] === '2') node.state = 'PREEMPTED';
    world.isStillborn = () => false;
    await wait(world, 8);
    assert.ok(world.tpus.made.includes('tpu-us-central1-a-0#3'), world.tpus.made.slice(10).join());
  });
});

describe('held workers', () => {
  for (const {how, message} of [
    {how: 'paused', message: {action: 'pause', run: RUN}},
    {how: 'out of money', message: {action: 'configure', run: RUN, budget_usd: 0.01}},
  ])
    it(`of a run that is ${how} go, and another run that has work does not pay for them`, async () => {
      const world = await aFleet(10);
      await waitInSilence(world, 4);
      const held = await firstLives(world);
      assert.equal(held.length, 8);
      for (let index = 0; index < 10; index++) world.drop('other', index, someLines(40, `o${index}`));
      await world.deliverAll();
      world.control(message);
      await wait(world, 6);
      assert.deepEqual(
        (await firstLives(world)).filter(({name}) => isAmong(held)(name)),
        [],
      );
      const paid = await world.store.query('workers');
      assert.deepEqual(
        paid.filter(({data}) => data.incarnation === 1 && data.charged_to === 'other'),
        [],
      );
    });

  it('that have ended keep no slot from the next run', async () => {
    const world = await aFleet(1, {GLEANER_SILENT_S: '600'});
    silence(world);
    const suspect = async () => (await workersOf(world))[0]?.suspect ?? null;
    await world.until('a lost lease', async () => (await suspect()) !== null, 9, 0);
    world.control({action: 'stop', run: RUN});
    await world.untilAsleep(20);
    assert.notEqual(await suspect(), null);
    world.drop('next', 0, someLines(4));
    await world.untilAsleep(30);
    assert.equal((await world.run('next'))?.status, 'completed');
  });

  it('whose streams were cancelled count no stream as failed for its machine', async () => {
    const world = await aFleet(10);
    silence(world, name => Number(name.split('-').at(-1)) < 6);
    world.isStillborn = () => true;
    await wait(world, 4);
    const lost = (await firstLives(world)).flatMap(({suspect}) => suspect?.work.split('/')[1] ?? []);
    assert.ok(lost.length >= 3);
    for (const stream of lost) await world.order({action: 'cancel', run: RUN, stream});
    world.isStillborn = () => false;
    for (const agent of world.agents.values()) if (agent.incarnation > 1) agent.silent = false;
    await wait(world, 8);
    const run = await world.run(RUN);
    assert.deepEqual([run?.status, run?.machine_failed_streams], ['active', 0]);
  });
});

const STOPS: Case[] = [
  {
    name: 'stop during a silence guard lets the held workers go after the time to drain',
    when: async world => {
      await waitInSilence(world, 4);
      assert.equal((await silenceGuardOf(world))?.held, 8);
      world.control({action: 'stop', run: RUN});
      await wait(world, 8);
    },
    then: async world => {
      assert.equal((await firstLives(world)).length, 0);
      await wait(world, 2);
      assert.equal(world.tpus.nodes.size, 0);
    },
  },
  {
    name: 'stop before the silence is known lets the silent workers go after the time to drain, also while another run waits',
    when: async world => {
      for (let index = 0; index < 10; index++) world.drop('other', index, someLines(400, `o${index}`));
      await wait(world, 1);
      silence(world);
      world.isStillborn = () => true;
      world.control({action: 'stop', run: RUN});
      await wait(world, 8);
    },
    then: async world => assert.equal((await firstLives(world)).length, 0),
  },
];

describe('silent workers of a stopped run', () => {
  runCases(STOPS);
});
