/** Creates that stop because the boots of nodes fail. */
import assert from 'node:assert/strict';
import {attemptRecords, poolRecords} from '../../../shared/control-plane/documents/documents.ts';
import {paths} from '../../../shared/domain/names.ts';
import type {FakeAgent} from '../../world/agent.ts';
import {
  aFleet,
  errors,
  firstLives,
  RUN,
  silence,
  stopCreates,
  wait,
  zoneOf,
} from '../../world/scenes/fleet.ts';
import {type Case, runCases} from '../../world/scenes/fleet-cases.ts';
import {aRequestedNode} from '../../world/scenes/one-worker.ts';
import {A0, ONE_SLOT, ZONE} from '../../world/scenes/places.ts';
import {someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const OTHER_ZONE = 'europe-west4-b';
const TWO_ZONES = {GLEANER_ZONES: `${ZONE},${OTHER_ZONE}`};
const NO_CHURN = {GLEANER_SHORT_LIFE_S: '1'};

const CASES: Case[] = [
  {
    name: 'nodes that are READY and never speak are deleted, and five of them stop creates @full',
    given: async () => {
      const world = new World({
        GLEANER_ZONES: ZONE,
        GLEANER_WORKERS_PER_ZONE: '10',
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
        errors(world, /Creates of pool tpu stop: 5 boots in a row failed.*"action":"resume","pool":"tpu"/)
          .length > 0,
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
      assert.notEqual((await zoneOf(world))?.limiter.state, 'open');
    },
  },
];

describe('boots that never speak', () => {
  runCases(CASES);
});

/** Each agent says hello, sends a heartbeat of its setup, and then does what `ends` does. */
function aWorldOfFailingBoots(ends: (agent: FakeAgent) => Promise<unknown>, set = ONE_SLOT): World {
  const world = new World({...set, ...NO_CHURN});
  world.drop(RUN, 0, someLines(4, 's'));
  world.onAgent = agent => {
    agent.beat = async () => {
      if (agent.hasEnded || agent.silent) return;
      await agent.heartbeat();
      await ends(agent);
      agent.silent = true;
    };
    agent.step = async () => {};
  };
  return world;
}

describe('boots that say hello and then fail', () => {
  for (const [name, ends, cause] of [
    ['with a reason', agent => agent.failBoot('the disk is full'), 'its boot failed: the disk is full'],
    ['in silence', async () => {}, 'it has said nothing for 120 s in its boot'],
  ] as [string, (agent: FakeAgent) => Promise<unknown>, string][])
    it(`${name} stop the creates of a pool of one worker after five`, async () => {
      const world = aWorldOfFailingBoots(ends);
      await wait(world, 60);
      assert.equal(world.tpus.made.length, 5);
      const {limiter} = await poolRecords.get(world.store, world.deps.config.pool);
      assert.deepEqual([limiter.failed_boots, limiter.reason], [5, cause]);
      const attempt = await attemptRecords.get(world.store, paths.attempt(A0, 5));
      assert.deepEqual([attempt?.cause, attempt?.cause_kind], [cause, 'boot']);
      const worker = await world.worker(A0);
      assert.deepEqual([worker?.phase, worker?.last_error, worker?.last_death], ['gone', cause, cause]);
      assert.equal(
        errors(world, /Creates of pool tpu stop: 5 boots in a row failed, the last because/).length,
        1,
      );
    });

  it('are deleted within a tick of their reason, all of a zone', async () => {
    const world = aWorldOfFailingBoots(agent => agent.failBoot('no space'), {
      GLEANER_ZONES: ZONE,
      GLEANER_WORKERS_PER_ZONE: '4',
    });
    for (let index = 1; index < 4; index++) world.drop(RUN, index, someLines(4, `s${index}`));
    await world.until('the first boots', () => world.agents.size === 4, 9);
    await world.minutes(2);
    assert.deepEqual(
      [...world.tpus.nodes.keys()].filter(
        name => world.tpus.node(name).metadata['gleaner-incarnation'] === '1',
      ),
      [],
    );
    assert.equal((await zoneOf(world))?.silence_guard, null, 'no silence guard holds them');
  });
});

describe('a stop of creates', () => {
  it('gives its hourly try to the next zone where the first has no capacity', async () => {
    const world = new World({
      ...TWO_ZONES,
      ...NO_CHURN,
      GLEANER_WORKERS_PER_ZONE: '8',
    });
    world.isStillborn = () => true;
    for (let index = 0; index < 16; index++) world.drop(RUN, index, someLines(4, `s${index}`));
    await wait(world, 12);
    const {limiter} = await poolRecords.get(world.store, world.deps.config.pool);
    assert.equal(limiter.state, 'stopped');
    const made = world.tpus.made.length;
    world.tpus.zone(OTHER_ZONE).soldOut = true;
    await wait(world, 90);
    assert.equal(
      world.tpus.made.slice(made).filter(name => name.includes(ZONE)).length,
      1,
      'one in 90 minutes',
    );
  });
});

describe('the tries of a pool whose creates are stopped', () => {
  for (const [bad, good] of [
    [ZONE, OTHER_ZONE],
    [OTHER_ZONE, ZONE],
  ] as const)
    it(`go to ${good} too, while nodes of ${bad} never speak`, async () => {
      const world = await aFleet(6, {...TWO_ZONES, ...NO_CHURN});
      const preempt = (place: string) => {
        for (const node of world.tpus.nodes.values()) if (node.zone === place) node.state = 'PREEMPTED';
        silence(world, name => name.includes(place));
      };
      world.isStillborn = name => name.includes(bad);
      preempt(bad);
      await wait(world, 12);
      assert.notEqual((await poolRecords.get(world.store, world.deps.config.pool)).limiter.state, 'open');
      const made = world.tpus.made.length;
      preempt(good);
      await wait(world, 150);
      const tried = world.tpus.made.slice(made);
      assert.ok(
        tried.some(name => name.includes(good)),
        tried.join(),
      );
    });
});

describe('the resume of a pool', () => {
  it('that was published before its creates stopped leaves the stops of the pool and of the zone', async () => {
    const world = await aFleet(1);
    const id = world.control({action: 'resume', pool: 'tpu'});
    const late = world.queue.splice(0);
    world.now += 1000;
    await stopCreates(world);
    const deliver = async () => {
      world.queue.push(...late);
      await world.deliverAll();
    };
    await deliver();
    assert.notEqual((await zoneOf(world))?.limiter.state, 'open');
    await world.store.transaction(async tx => {
      const pool = await poolRecords.get(tx, world.deps.config.pool);
      poolRecords.set(tx, {...pool, limiter: (await zoneOf(world))?.limiter ?? pool.limiter});
      tx.delete(`control/${id}`);
    });
    await deliver();
    assert.notEqual((await poolRecords.get(world.store, world.deps.config.pool)).limiter.state, 'open');
    const {reason} = (await world.store.get(`control/${id}`)) ?? {};
    assert.match(String(reason), /^outdated: pool tpu stopped creating nodes later/);
  });
});

describe('the pause of a pool', () => {
  it('stops every create until resume, and the nodes go on', async () => {
    const world = await aFleet(2);
    const pool = async () => (await poolRecords.get(world.store, world.deps.config.pool)).limiter;
    await world.order({action: 'pause', pool: 'tpu'});
    assert.deepEqual([(await pool()).state, (await pool()).cause], ['stopped', 'person']);
    world.tpus.node(`tpu-${ZONE}-0`).state = 'PREEMPTED';
    await wait(world, 130);
    assert.equal(world.tpus.made.length, 2, 'no hourly try either');
    assert.equal(world.tpus.node(`tpu-${ZONE}-1`).state, 'READY');
    world.control({action: 'resume', pool: 'tpu'});
    await world.until('another node', () => world.tpus.made.length === 3, 9, 0);
    assert.equal((await pool()).state, 'open');
  });

  it('refuses the create that is under way', async () => {
    const world = await aRequestedNode();
    const create = world.queue.splice(0);
    await world.order({action: 'pause', pool: 'tpu'});
    world.queue.push(...create);
    await world.deliverAll();
    await wait(world, 10);
    assert.deepEqual(world.tpus.made, []);
    const {phase, last_error} = (await world.worker(A0)) ?? {};
    assert.deepEqual([phase, last_error], ['gone', 'a person paused pool "tpu"']);
  });

  it('that was published before a resume leaves the pool open', async () => {
    const world = await aFleet(1);
    const id = world.control({action: 'pause', pool: 'tpu'});
    const late = world.queue.splice(0);
    world.now += 1000;
    await world.order({action: 'resume', pool: 'tpu'});
    world.queue.push(...late);
    await world.deliverAll();
    assert.equal((await poolRecords.get(world.store, world.deps.config.pool)).limiter.state, 'open');
    assert.match(String((await world.store.get(`control/${id}`))?.reason), /^outdated/);
  });
});

describe('an invalid count of creates', () => {
  it('stops no create', async () => {
    const world = await aFleet(2);
    await world.store.transaction(async tx => tx.set('system/creates', {creates: 'x'}));
    world.tpus.node(`tpu-${ZONE}-0`).state = 'PREEMPTED';
    await world.until('another node', () => world.tpus.made.length === 3, 9, 1);
  });
});
