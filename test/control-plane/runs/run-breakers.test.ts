/** Runs that are paused because their machines die at work on them. */
import assert from 'node:assert/strict';
import {runRecords} from '../../../shared/control-plane/documents/documents.ts';
import {iso} from '../../../shared/domain/time.ts';
import {aFleet, faults, RUN, workersOf} from '../../world/scenes/fleet.ts';
import {type Case, runCases} from '../../world/scenes/fleet-cases.ts';
import {ZONE} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import type {World} from '../../world/world.ts';

/** Every worker falls silent as soon as it is at work, until the run is paused. */
async function silenceAtWork(world: World): Promise<void> {
  world.isStillborn = () => false;
  for (let minute = 0; minute < 60; minute++) {
    for (const agent of world.agents.values()) agent.silent ||= agent.state === 'working';
    await world.minute(1);
    if ((await world.run(RUN))?.status === 'paused') break;
  }
}

const CASES: Case[] = [
  {
    name: 'a run that silences the machines of ten streams is paused, and resume counts anew',
    when: silenceAtWork,
    then: async world => {
      const run = await world.run(RUN);
      assert.equal(run?.status, 'paused');
      assert.match(
        run?.reason ?? '',
        /10 machines in a row died while working on it without storing a shard.*then resume/,
      );
      const failed = await world.store.query(`runs/${RUN}/streams`);
      assert.ok(
        failed.every(({data}) => data.status !== 'failed'),
        'no stream is given up for the run',
      );
      await world.order({action: 'resume', run: RUN});
      const resumed = await world.run(RUN);
      assert.deepEqual([resumed?.status, resumed?.machine_deaths], ['active', 0]);
    },
  },
  {
    name: 'a run of a thousand streams that silence their machines costs at most 30 of them, and no stream is given up @full',
    given: async () => {
      const world = await aFleet(10);
      for (let index = 10; index < 1000; index++) world.drop(RUN, index, someLines(1, `s${index}`));
      await world.deliverAll();
      return world;
    },
    when: silenceAtWork,
    then: async world => {
      const run = await world.run(RUN);
      assert.equal(run?.status, 'paused');
      assert.match(run?.reason ?? '', /10 machines in a row died while working on it/);
      const lives = (await workersOf(world)).reduce((sum, {incarnation}) => sum + incarnation, 0);
      assert.ok(lives <= 30, `${lives} lives`);
      const streams = await world.store.query(`runs/${RUN}/streams`);
      assert.deepEqual([streams.length, streams.filter(({data}) => data.status === 'failed')], [1000, []]);
    },
  },
  {
    name: 'three streams that fail for their machines pause the run, and the others are kept @full',
    given: () => aFleet(4, {GLEANER_WORKERS_PER_ZONE: '5', GLEANER_SHORT_LIFE_S: '1'}),
    when: async world => {
      // The fifth worker alone has time for these, and the others store shards between its deaths.
      for (const index of [4, 5, 6]) world.drop(RUN, index, someLines(400, `s${index}`));
      for (let minute = 0; minute < 100; minute++) {
        for (const agent of world.agents.values())
          if (agent.state === 'working' && Number(agent.lease?.stream) > 3)
            agent.failure = {kind: 'infrastructure', reason: `the machine broke at ${iso(world.now)}`};
        await world.minute(2);
        if ((await world.run(RUN))?.status === 'paused') break;
      }
    },
    then: async world => {
      const run = await world.run(RUN);
      assert.match(run?.reason ?? '', /3 streams failed because their machines died/);
      assert.equal((await world.stream(RUN, '003'))?.status === 'failed', false);
    },
  },
];

describe('a run that kills machines', () => {
  runCases(CASES);
});

describe('a stream whose host restarts after the lease and before the limit of silence', () => {
  it('is charged once for each machine, and fails in the end', async () => {
    const world = await aFleet(1);
    const name = `tpu-${ZONE}-0`;
    const status = async () => (await world.run(RUN))?.status;
    for (let restarts = 0; restarts < 40 && (await status()) === 'active'; restarts++) {
      assert.ok((await faults(world)) <= world.tpus.made.length);
      await world.until('work', () => world.agents.get(name)?.state === 'working', 20, 1);
      world.agent(name).silent = true;
      world.now += 100_000;
      await world.tick();
      await world.boot(name).beat();
      await world.tick();
      await world.deliverAll();
    }
    assert.deepEqual([await status(), await faults(world), world.tpus.made.length], ['failed', 5, 5]);
  });
});

describe('the resume of a run', () => {
  it('that was published before its breaker paused it leaves the pause', async () => {
    const world = await aFleet(1);
    world.control({action: 'resume', run: RUN});
    const late = world.queue.splice(0);
    world.now += 600_000;
    await world.store.transaction(async tx => {
      const run = (await runRecords.get(tx, RUN)) ?? assert.fail();
      runRecords.set(tx, {...run, machine_deaths: 9, machine_deaths_shards: run.total_shards});
    });
    world.agent(`tpu-${ZONE}-0`).failure = {kind: 'infrastructure', reason: 'the machine broke'};
    await world.agent(`tpu-${ZONE}-0`).step();
    await world.tick();
    assert.equal((await world.run(RUN))?.status, 'paused');
    world.queue.push(...late);
    await world.deliverAll();
    assert.equal((await world.run(RUN))?.status, 'paused');
  });
});
