import assert from 'node:assert/strict';
import {iso} from '../../shared/domain/time.ts';
import {isAlive} from '../../shared/domain/worker/worker.ts';
import {someLines} from '../support/agent.ts';
import {World} from '../support/control-plane-harness.ts';
import {
  aFleet,
  brakeOf,
  errors,
  faults,
  firstLives,
  RUN,
  silence,
  wait,
  workersOf,
  ZONE,
  zoneOf,
} from '../support/fleet.ts';

/** Every worker falls silent as soon as it is at work, until the run is paused. */
async function silenceAtWork(world: World): Promise<void> {
  world.isStillborn = () => false;
  for (let minute = 0; minute < 60; minute++) {
    for (const agent of world.agents.values()) agent.silent ||= agent.state === 'working';
    await world.minute(1);
    if ((await world.run(RUN))?.status === 'paused') break;
  }
}

const ended = async (world: World, workers: number) => workers - (await firstLives(world)).length;

type Case = {
  name: string;
  given?: () => Promise<World>;
  when: (world: World) => Promise<unknown>;
  then: (world: World) => Promise<unknown>;
};

const CASES: Case[] = [
  {
    name: 'a whole zone that is PREEMPTED at once is deleted at once, and no brake is set',
    when: async world => {
      for (const node of world.tpus.nodes.values()) node.state = 'PREEMPTED';
      silence(world);
      await wait(world, 1);
    },
    then: async world => {
      assert.deepEqual([await ended(world, 10), await brakeOf(world), await faults(world)], [10, null, 0]);
    },
  },
  {
    name: 'all nodes that are deleted by hand are found absent, made again, and no brake is set',
    when: async world => {
      world.tpus.nodes.clear();
      await wait(world, 6);
    },
    then: async world => {
      assert.equal(await ended(world, 10), 10);
      const causes = (await workersOf(world)).map(({last_death}) => last_death);
      assert.deepEqual([...new Set(causes)], ['it vanished from Cloud TPU']);
      assert.deepEqual([await brakeOf(world), await faults(world)], [null, 0]);
    },
  },
  {
    name: 'a list without the zone, twenty times, ends no worker that is heard',
    when: async world => {
      world.tpus.omitted.add(ZONE);
      await wait(world, 20);
    },
    then: async world => assert.equal(await ended(world, 10), 0),
  },
  {
    name: 'a silent worker that lists leave out and get finds is not called absent',
    when: async world => {
      world.tpus.omitted.add(ZONE);
      silence(world);
      await wait(world, 6);
    },
    then: async world => {
      const causes = (await workersOf(world)).flatMap(({last_death}) => last_death ?? []);
      assert.ok(causes.length > 0 && causes.every(cause => /said nothing/.test(cause)), causes.join('; '));
    },
  },
  {
    name: 'a pool of one, READY and dead, is replaced and its stream is charged',
    given: () => aFleet(1),
    when: async world => {
      silence(world);
      await wait(world, 4);
    },
    then: async world => assert.deepEqual([await ended(world, 1), await faults(world)], [1, 1]),
  },
  {
    name: 'in a pool of three that are all silent, one is the probe, and its first word ends the others',
    given: () => aFleet(3),
    when: async world => {
      silence(world);
      await wait(world, 3);
      assert.deepEqual([await ended(world, 3), (await brakeOf(world))?.held, await faults(world)], [1, 2, 1]);
      await wait(world, 7);
    },
    then: async world => {
      assert.deepEqual([await ended(world, 3), await faults(world)], [3, 3]);
      await wait(world, 12);
      assert.equal(await brakeOf(world), null, 'the evidence goes');
    },
  },
  {
    name: 'worker-api that is away for two hours ends no worker and charges no stream @full',
    when: async world => {
      for (const name of ['tpu-us-central1-a-0', 'tpu-us-central1-a-1'])
        world.tpus.node(name).state = 'PREEMPTED';
      await wait(world, 2);
      world.isApiOut = true;
      await wait(world, 120);
      assert.ok(
        (await workersOf(world)).some(({phase}) => phase === 'booting'),
        'nodes boot while worker-api is away',
      );
      world.isApiOut = false;
      await world.minutes(20, 1);
    },
    then: async world => {
      assert.deepEqual([await ended(world, 10), await faults(world), await brakeOf(world)], [2, 0, null]);
      const incarnations = (await workersOf(world)).map(({incarnation}) => incarnation);
      assert.equal(Math.max(...incarnations), 2, 'and a node that booted is not made again');
    },
  },
  {
    name: 'a tick that may not ping counts heartbeats as proofs, and says what is wrong',
    when: async world => {
      world.isPingRefused = true;
      world.agent('tpu-us-central1-a-3').silent = true;
      await wait(world, 5);
    },
    then: async world => {
      assert.equal(await ended(world, 10), 1);
      assert.ok(
        errors(world, /Failed to ping worker-api, \d+ times.*let on-tick's service account/).length > 0,
      );
    },
  },
  {
    name: 'stop during a brake lets the held workers go after the time to drain',
    when: async world => {
      silence(world);
      world.isStillborn = () => true;
      await wait(world, 4);
      assert.equal((await brakeOf(world))?.held, 8);
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
    name: 'two ticks at once replace one share of the silent workers',
    when: async world => {
      silence(world);
      world.isStillborn = () => true;
      await wait(world, 2);
      world.now += 60_000;
      await world.interleaver.run(() => 0.5, [() => world.tick(), () => world.tick()]);
    },
    then: async world => assert.equal(await ended(world, 10), 2),
  },
  {
    name: 'a brake holds silent workers, counts their dollars, and says so',
    when: async world => {
      silence(world);
      world.isStillborn = () => true;
      await wait(world, 4);
      const before = (await workersOf(world)).filter(({incarnation}) => incarnation === 1);
      await wait(world, 1);
      const after = await workersOf(world);
      for (const {name, phase, costs} of before) {
        if (phase === 'deleting' || phase === 'gone') continue;
        const later = after.find(worker => worker.name === name)?.costs ?? {};
        assert.ok(Number(later[RUN] ?? 0) >= Number(costs[RUN] ?? 0));
      }
    },
    then: async world => {
      const brake = await brakeOf(world);
      const [held] = await firstLives(world);
      assert.equal(brake?.held, 8);
      assert.equal(brake?.held_usd_per_hour?.toFixed(3), (8 * Number(held?.usd_per_hour)).toFixed(3));
      assert.ok(errors(world, /holds 8 silent workers for \$\d+\.\d\d an hour/).length > 0);
      const run = await world.run(RUN);
      await wait(world, 10);
      assert.ok(
        Number((await world.run(RUN))?.cost_usd) > Number(run?.cost_usd),
        'the run pays for what is held',
      );
      assert.equal(await faults(world), await ended(world, 10), 'and no stream of a held worker is charged');
    },
  },
  {
    name: 'held workers that speak again are charged nothing, and the share returns after ten minutes',
    when: async world => {
      silence(world);
      world.isStillborn = () => true;
      await wait(world, 4);
      world.isStillborn = () => false;
      for (const agent of world.agents.values()) if (agent.incarnation === 1) agent.silent = false;
      await wait(world, 16);
    },
    then: async world => {
      assert.deepEqual([await ended(world, 10), await faults(world), await brakeOf(world)], [2, 2, null]);
    },
  },
  {
    name: 'agents of a zone that are cut off for ten hours lose a fifth of it and one node an hour, and the rest after six hours @full',
    when: async world => {
      silence(world);
      world.isStillborn = () => true;
      await wait(world, 300);
    },
    then: async world => {
      const lost = await ended(world, 10);
      assert.ok(lost > 2 && lost <= 2 + 5, `${lost} of 10 ended in five hours`);
      await wait(world, 300);
      assert.equal((await firstLives(world)).length, 0, 'after six hours of silence the rest end');
      assert.equal(
        (await world.run(RUN))?.status,
        'active',
        'silence that no probe has judged pauses no run',
      );
      world.isStillborn = () => false;
      world.control({action: 'resume', pool: 'tpu'});
      await world.minutes(30, 1);
      assert.equal((await workersOf(world)).filter(isAlive).length, 10, 'all slots are at work again');
    },
  },
  {
    name: 'nodes that are READY and never speak are deleted, and five of them stop creates @full',
    given: async () => {
      const world = new World({
        GLEANER_ZONES: ZONE,
        GLEANER_WORKERS_PER_ZONE: '10',
        GLEANER_CREATES_PER_HOUR: '1000',
        GLEANER_SHORT_LIFE_S: '1',
      });
      world.isStillborn = () => true;
      for (let index = 0; index < 10; index++) world.drop(RUN, index, someLines(4, `s${index}`));
      return world;
    },
    when: async world => {
      await wait(world, 50);
    },
    then: async world => {
      const made = world.tpus.made.length;
      assert.equal(made, 10, 'none is made again');
      assert.ok(
        errors(world, /Creates of pool tpu stop: 5 nodes in a row.*"action":"resume","pool":"tpu"/).length >
          0,
      );
      await wait(world, 130);
      const tried = world.tpus.made.length - made;
      assert.ok(tried >= 1 && tried <= 3, `${tried} boots are tried in two hours`);
      world.isStillborn = () => false;
      world.control({action: 'resume', pool: 'tpu'});
      await world.untilAsleep(40);
      assert.equal((await world.run(RUN))?.status, 'completed', 'resume ends the stop');
    },
  },
  {
    name: 'a new bundle ends the stop of creates',
    given: async () => {
      const world = new World({
        GLEANER_ZONES: ZONE,
        GLEANER_WORKERS_PER_ZONE: '5',
        GLEANER_SHORT_LIFE_S: '1',
      });
      world.isStillborn = () => true;
      for (let index = 0; index < 5; index++) world.drop(RUN, index, someLines(4, `s${index}`));
      return world;
    },
    when: async world => {
      await wait(world, 20);
      assert.equal(world.tpus.made.length, 5);
      world.isStillborn = () => false;
      world.redeploy({GLEANER_BUNDLE: 'd'.repeat(64)});
    },
    then: async world => {
      await world.untilAsleep(30);
      assert.equal((await world.run(RUN))?.status, 'completed');
    },
  },
  {
    name: 'a good fleet whose new bundle is bad keeps the workers that it has',
    when: async world => {
      world.redeploy({GLEANER_BUNDLE: 'd'.repeat(64), GLEANER_SHORT_LIFE_S: '1'});
      world.isStillborn = (_, incarnation) => incarnation > 1;
      for (const [index, node] of [...world.tpus.nodes.values()].entries())
        if (index < 6) node.state = 'PREEMPTED';
      for (const [index, agent] of [...world.agents.values()].entries()) if (index < 6) agent.silent = true;
      await wait(world, 40);
    },
    then: async world => {
      assert.equal((await firstLives(world)).length, 4);
      assert.notEqual((await zoneOf(world))?.boots.stopped_at, null);
    },
  },
  {
    name: 'a run that silences the machines of ten streams is paused, and resume counts anew',
    when: silenceAtWork,
    then: async world => {
      const run = await world.run(RUN);
      assert.equal(run?.status, 'paused');
      assert.match(
        run?.reason ?? '',
        /10 machines in a row died at work on it, and no shard was stored.*then resume/,
      );
      const failed = await world.store.query(`runs/${RUN}/streams`);
      assert.ok(
        failed.every(({data}) => data.status !== 'failed'),
        'no stream is given up for the run',
      );
      world.control({action: 'resume', run: RUN});
      await world.deliverAll();
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
      assert.match(run?.reason ?? '', /10 machines in a row died at work on it/);
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
      assert.match(run?.reason ?? '', /3 streams failed for the deaths of their machines/);
      assert.equal((await world.stream(RUN, '003'))?.status === 'failed', false);
    },
  },
];

describe('a fleet', () => {
  for (const {name, given = () => aFleet(10), when, then} of CASES)
    it(name, async () => {
      const world = await given();
      await when(world);
      await then(world);
      await world.store.close();
    });
});
