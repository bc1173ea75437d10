/** Evidence that ends workers: of the provider, of lists that leave nodes out, and of silence while worker-api provably worked. */
import assert from 'node:assert/strict';
import {storePing} from '../../../shared/control-plane/workers/service-proofs.ts';
import {
  aFleet,
  errors,
  faults,
  firstLives,
  RUN,
  silence,
  silenceGuardOf,
  wait,
  workersOf,
} from '../../world/scenes/fleet.ts';
import {type Case, ended, runCases} from '../../world/scenes/fleet-cases.ts';
import {ZONE} from '../../world/scenes/places.ts';
import type {World} from '../../world/world.ts';

const CASES: Case[] = [
  {
    name: 'all nodes that are deleted by hand are found absent, made again, and no silence guard is set',
    when: async world => {
      world.tpus.nodes.clear();
      await wait(world, 6);
    },
    then: async world => {
      assert.equal(await ended(world, 10), 10);
      const causes = (await workersOf(world)).map(({last_death}) => last_death);
      assert.deepEqual([...new Set(causes)], ['it vanished from Cloud TPU']);
      assert.deepEqual([await silenceGuardOf(world), await faults(world)], [null, 0]);
    },
  },
  {
    name: 'a list without the zone, twenty times, ends no worker that is heard',
    when: async world => {
      world.tpus.zone(ZONE).isOmitted = true;
      await wait(world, 20);
    },
    then: async world => assert.equal(await ended(world, 10), 0),
  },
  {
    name: 'a silent worker that lists leave out and get finds is not called absent',
    when: async world => {
      world.tpus.zone(ZONE).isOmitted = true;
      silence(world);
      await wait(world, 6);
    },
    then: async world => {
      const causes = (await workersOf(world)).flatMap(({last_death}) => last_death ?? []);
      assert.ok(causes.length > 0 && causes.every(cause => /said nothing/.test(cause)), causes.join('; '));
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
      assert.deepEqual(
        [await ended(world, 10), await faults(world), await silenceGuardOf(world)],
        [2, 0, null],
      );
      const incarnations = (await workersOf(world)).map(({incarnation}) => incarnation);
      assert.equal(Math.max(...incarnations), 2, 'and a node that booted is not made again');
    },
  },
  {
    name: 'a tick that may not ping counts heartbeats as proofs, and logs the missing right',
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
];

describe('the end of workers', () => {
  runCases(CASES);
});

describe('a node that lists leave out', () => {
  it('is asked for after the deletes of a spent budget are out', async () => {
    const world = await aFleet(4);
    silence(world, name => name.endsWith('-0'));
    world.tpus.nodes.delete('tpu-us-central1-a-0');
    await wait(world, 1);
    world.control({action: 'configure', run: RUN, budget_usd: 0.01});
    await world.deliverNext('control');
    const calls = callsOf(world, async () => {
      throw new Error('no answer');
    });
    world.now += 60_000;
    for (const agent of world.agents.values()) await agent.beat();
    await world.tick().catch(() => {});
    assert.equal(calls.filter(call => call === 'delete').length, 4);
    assert.ok(!calls.slice(0, calls.lastIndexOf('delete')).includes('get'), calls.join());
  });

  it('is asked for after the deletes of preempted nodes are out', async () => {
    const world = await aFleet(6);
    silence(world, name => name.endsWith('-0'));
    world.tpus.nodes.delete('tpu-us-central1-a-0');
    const calls = callsOf(world, async () => {});
    for (let minute = 1; minute < 6 && !calls.includes('get'); minute++) {
      calls.length = 0;
      world.tpus.node(`tpu-us-central1-a-${minute}`).state = 'PREEMPTED';
      world.now += 60_000;
      for (const agent of world.agents.values()) await agent.beat();
      await world.tick();
    }
    assert.ok(calls.indexOf('get') > 0 && calls[0] === 'delete', calls.join());
  });

  it('stays after two lists within a minute, and where get has no answer', async () => {
    const world = await aFleet(2);
    silence(world);
    world.tpus.zone(ZONE).isOmitted = true;
    world.deps = {
      ...world.deps,
      tpus: Object.assign(Object.create(world.deps.tpus), {
        get: async () => Promise.reject(new Error('no answer')),
      }),
    };
    await wait(world, 2);
    const causes = (await workersOf(world)).map(({last_death}) => last_death);
    assert.deepEqual(
      causes.filter(cause => /vanished/.test(cause ?? '')),
      [],
    );
  });
});

describe('the time that worker-api served', () => {
  it('is left alone where its document is not understood: no silence counts until it is', async () => {
    const world = await aFleet(2);
    await world.edit('system/served', {failed_pings: -1});
    world.agent(`tpu-${ZONE}-0`).silent = true;
    await wait(world, 20);
    assert.equal((await firstLives(world)).length, 2);
    assert.equal((await world.store.get('system/served'))?.failed_pings, -1);
    await world.edit('system/served', {failed_pings: 0});
    await wait(world, 20);
    assert.equal((await firstLives(world)).length, 1);
  });
});

describe('the alert of a ping that fails beside heartbeats', () => {
  it('is not raised in an outage of worker-api, however often the tick is repeated', async () => {
    const world = await aFleet(2);
    world.isApiOut = true;
    for (let times = 0; times < 3; times++) {
      world.now += 10_000;
      await world.tick().catch(() => {});
    }
    assert.deepEqual(errors(world, /ping/), []);
  });
});

describe('a ping', () => {
  it('is a proof of the time when worker-api received it, also if the Store answers minutes later', async () => {
    const world = await aFleet(2);
    const {deps} = world;
    const received_ms = world.now;
    const transaction: typeof deps.store.transaction = async work => {
      world.now += 5 * 60_000;
      return deps.store.transaction(work);
    };
    await storePing({...deps, store: {...deps.store, transaction}});
    const {proven_at} = (await world.store.get('system/served')) ?? assert.fail();
    assert.ok(Date.parse(String(proven_at)) - received_ms < 1000, String(proven_at));
  });
});

/** Calls of `get` and actions that are published, in order. */
function callsOf(world: World, get: () => Promise<void>): string[] {
  const calls: string[] = [];
  const {tpus, bus} = world.deps;
  world.deps = {
    ...world.deps,
    tpus: Object.assign(Object.create(tpus), {
      get: async (name: string, zone: string) => {
        calls.push('get');
        await get();
        return tpus.get(name, zone);
      },
    }),
    bus: {
      publish: (topic, message) => {
        calls.push(String(message.action));
        return bus.publish(topic, message);
      },
    },
  };
  return calls;
}
