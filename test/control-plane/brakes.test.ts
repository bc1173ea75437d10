import assert from 'node:assert/strict';
import {poolRecords, runRecords, workerRecords} from '../../shared/control-plane/state/documents.ts';
import {iso} from '../../shared/domain/time.ts';
import {someLines} from '../support/agent.ts';
import {shardMetadataOf} from '../support/builders.ts';
import {World} from '../support/control-plane-harness.ts';
import {
  aFleet,
  brakeOf,
  errors,
  faults,
  firstLives,
  RUN,
  silence,
  stopCreates,
  wait,
  workersOf,
  ZONE,
  zoneOf,
} from '../support/fleet.ts';

const OTHER_ZONE = 'europe-west4-b';
const TWO_ZONES = {GLEANER_ZONES: `${ZONE},${OTHER_ZONE}`};
const NO_CHURN = {GLEANER_SHORT_LIFE_S: '1'};

const isAmong = (names: readonly {name: string}[]) => (name: string) =>
  names.some(each => each.name === name);

describe('silence of many workers', () => {
  it('in one zone of 60 workers pauses no run, and ends no worker of the other zone @full', async () => {
    const world = await aFleet(60, TWO_ZONES);
    silence(world, name => name.includes(ZONE));
    world.isStillborn = name => name.includes(ZONE);
    await world.minutes(6, 1);
    assert.equal((await world.run(RUN))?.status, 'active');
    assert.equal((await firstLives(world)).length, 48);
    assert.equal((await firstLives(world, OTHER_ZONE)).length, 60);
  });

  it('ends no healthy worker where the network heals and a probe speaks first', async () => {
    const world = await aFleet(20);
    silence(world);
    world.isStillborn = () => true;
    await wait(world, 4);
    const probes = () => [...world.agents.values()].filter(({incarnation}) => incarnation > 1);
    await world.until('a probe that boots', () => probes().length > 0, 9, 0);
    const held = (await firstLives(world)).length;
    for (const agent of world.agents.values()) agent.silent = false;
    world.isStillborn = () => false;
    for (const probe of probes()) await probe.beat();
    world.now += 1000;
    await world.tick();
    await world.minutes(3, 1);
    const {status, reason} = (await world.run(RUN)) ?? {};
    assert.deepEqual([(await firstLives(world)).length, status], [held, 'active'], String(reason));
    assert.ok(held >= 16 && (await faults(world)) <= 4);
  });

  it('for six hours ends a worker though the shards of another cannot be listed', async () => {
    const world = await aFleet(6);
    silence(world);
    world.isStillborn = () => true;
    await wait(world, 6);
    const held = await firstLives(world);
    const [first] = held;
    await world.store.transaction(async tx => {
      tx.set('system/served', {...(await tx.get('system/served')), gaps: []});
      const heartbeat_at = iso(world.now - 7 * 3_600_000);
      for (const worker of held) workerRecords.set(tx, {...worker, heartbeat_at});
    });
    const output = `activations/${RUN}/tpu_${Number(first?.suspect?.work.split('/')[1])}/`;
    const {objects} = world.deps;
    const list: typeof objects.list = async (prefix, options) => {
      if (prefix === output && options?.start !== undefined) throw new Error('503');
      return objects.list(prefix, options);
    };
    world.deps = {...world.deps, objects: Object.assign(Object.create(objects), {list})};
    world.now += 60_000;
    await world.tick().catch(() => {});
    assert.deepEqual(
      (await firstLives(world)).map(({name}) => name),
      [first?.name],
    );
  });

  it('in setup is held as that of workers at work', async () => {
    const world = new World({
      GLEANER_ZONES: ZONE,
      GLEANER_WORKERS_PER_ZONE: '10',
      GLEANER_CREATES_PER_HOUR: '1000',
    });
    for (let index = 0; index < 10; index++) world.drop(RUN, index, someLines(40, `s${index}`));
    await world.until('agents', () => world.agents.size === 10, 10, 0);
    await wait(world, 2);
    silence(world);
    world.isStillborn = () => true;
    await wait(world, 6);
    assert.equal((await firstLives(world)).length, 8);
    await wait(world, 10);
    assert.ok((await firstLives(world)).length >= 7, 'the limit of setup ends no silent worker');
  });

  it('charges no stream while they are held, also of hosts that have just restarted', async () => {
    const world = await aFleet(10);
    for (const name of [...world.agents.keys()]) await world.boot(name).beat();
    silence(world);
    world.isStillborn = () => true;
    await wait(world, 5);
    const ended = 10 - (await firstLives(world)).length;
    assert.deepEqual([ended, await faults(world)], [2, 2]);
  });

  it('lasts six hours before all of them end, but for one that stored a shard since @full', async () => {
    const world = await aFleet(10);
    silence(world);
    world.isStillborn = () => true;
    await wait(world, 10);
    const [held] = (await firstLives(world)).toReversed();
    const [, stream = ''] = held?.suspect?.work.split('/') ?? [];
    await wait(world, 290);
    const {spec_hash = ''} = (await world.run(RUN)) ?? {};
    const {crc32c = '', epoch = 0} = (await world.stream(RUN, stream)) ?? {};
    const range = {first_sample: '0', last_sample: '1', samples: '2', rejected: '0', final: 'false'};
    const about = {run: RUN, stream, shard: '1', spec_hash: String(spec_hash), stream_crc32c: crc32c};
    world.objects.put(
      `activations/${RUN}/tpu_${Number(stream)}/shard_0001.safetensors`,
      'x',
      shardMetadataOf({...about, ...range, epoch: String(held?.suspect?.epoch ?? epoch)}),
    );
    await wait(world, 62);
    assert.deepEqual(
      (await firstLives(world)).map(({name}) => name),
      [held?.name],
    );
  });
});

describe('a probe', () => {
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
    world.tpus.soldOut.add(ZONE);
    await wait(world, 8);
    assert.equal((await brakeOf(world))?.bad_verdicts, 0, 'no capacity is no verdict');
    world.tpus.soldOut.clear();
    await wait(world, 8);
    assert.ok(world.tpus.made.length >= 12, world.tpus.made.slice(10).join());
  });

  it('that is preempted before it speaks, during a stop of creates, is asked for again', async () => {
    const world = await aFleet(10, NO_CHURN);
    await stopCreates(world);
    silence(world);
    world.isStillborn = () => true;
    await world.until('two probes', () => world.tpus.made.length === 12, 12, 0);
    for (const node of world.tpus.nodes.values())
      if (node.metadata['gleaner-incarnation'] === '2') node.state = 'PREEMPTED';
    world.isStillborn = () => false;
    await wait(world, 8);
    assert.ok(world.tpus.made.includes('tpu-us-central1-a-0#3'), world.tpus.made.slice(10).join());
  });

  it('goes out where short lives have stopped all other creates', async () => {
    const world = await aFleet(10, {GLEANER_SHORT_LIFE_S: '86400'});
    silence(world);
    await wait(world, 20);
    assert.equal((await firstLives(world)).length, 0, 'its first word ends the others');
  });
});

describe('held workers', () => {
  for (const {how, message} of [
    {how: 'paused', message: {action: 'pause', run: RUN}},
    {how: 'out of money', message: {action: 'configure', run: RUN, budget_usd: 0.01}},
  ])
    it(`of a run that is ${how} go, and another run that has work does not pay for them`, async () => {
      const world = await aFleet(10);
      silence(world);
      world.isStillborn = () => true;
      await wait(world, 4);
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
    for (const stream of lost) world.control({action: 'cancel', run: RUN, stream});
    await world.deliverAll();
    world.isStillborn = () => false;
    for (const agent of world.agents.values()) if (agent.incarnation > 1) agent.silent = false;
    await wait(world, 8);
    const run = await world.run(RUN);
    assert.deepEqual([run?.status, run?.machine_failed_streams], ['active', 0]);
  });
});

describe('a stop of creates', () => {
  it('gives its hourly try to the next zone where the first has no capacity', async () => {
    const world = new World({
      ...TWO_ZONES,
      ...NO_CHURN,
      GLEANER_WORKERS_PER_ZONE: '8',
      GLEANER_CREATES_PER_HOUR: '1000',
    });
    world.isStillborn = () => true;
    for (let index = 0; index < 16; index++) world.drop(RUN, index, someLines(4, `s${index}`));
    await wait(world, 12);
    const {boots} = await poolRecords.get(world.store, world.deps.config.pool);
    assert.notEqual(boots.stopped_at, null);
    const made = world.tpus.made.length;
    world.tpus.soldOut.add(OTHER_ZONE);
    await wait(world, 90);
    assert.equal(
      world.tpus.made.slice(made).filter(name => name.includes(ZONE)).length,
      1,
      'one in 90 minutes',
    );
  });

  it('does not begin for nodes of an earlier bundle', async () => {
    const world = new World({
      GLEANER_ZONES: ZONE,
      ...NO_CHURN,
      GLEANER_WORKERS_PER_ZONE: '10',
      GLEANER_CREATES_PER_HOUR: '1000',
    });
    world.isStillborn = (_, incarnation) => incarnation === 1;
    for (let index = 0; index < 10; index++) world.drop(RUN, index, someLines(4, `s${index}`));
    await wait(world, 3);
    world.redeploy({GLEANER_BUNDLE: 'd'.repeat(64)});
    await world.untilAsleep(40);
    assert.equal((await world.run(RUN))?.status, 'completed');
    assert.deepEqual(errors(world, /Creates of .* stop/), []);
  });
});

describe('the tenth death of a machine in a row', () => {
  it('pauses no run that has stored a shard since the last tick', async () => {
    const world = await aFleet(12);
    await world.store.transaction(async tx => {
      const run = (await runRecords.get(tx, RUN)) ?? assert.fail();
      runRecords.set(tx, {...run, machine_deaths: 9, machine_deaths_shards: run.total_shards});
    });
    const healthy = world.agent('tpu-us-central1-a-1');
    await healthy.step();
    await healthy.step();
    await world.deliverAll();
    world.now += 20_000;
    world.agent('tpu-us-central1-a-0').failure = {kind: 'infrastructure', reason: 'the machine broke'};
    await world.agent('tpu-us-central1-a-0').step();
    world.now += 20_000;
    await world.tick();
    const run = await world.run(RUN);
    assert.deepEqual([run?.status, run?.machine_deaths], ['active', 1]);
  });
});

describe('a node that lists leave out', () => {
  it('is asked for after the deletes of a spent budget are out', async () => {
    const world = await aFleet(4);
    silence(world, name => name.endsWith('-0'));
    world.tpus.nodes.delete('tpu-us-central1-a-0');
    await wait(world, 1);
    world.control({action: 'configure', run: RUN, budget_usd: 0.01});
    await world.deliverAll();
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

  it('is not gone by two lists within a minute, nor where get has no answer', async () => {
    const world = await aFleet(2);
    silence(world);
    world.tpus.omitted.add(ZONE);
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
      assert.notEqual((await poolRecords.get(world.store, world.deps.config.pool)).boots.stopped_at, null);
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

describe('a stream whose host restarts after the lease and before the limit of silence', () => {
  it('is charged for each restart, and parked in the end', async () => {
    const world = await aFleet(1);
    const name = `tpu-${ZONE}-0`;
    const status = async () => (await world.run(RUN))?.status;
    for (let restarts = 0; restarts < 5; restarts++) {
      assert.deepEqual([await faults(world), await status()], [restarts, 'active']);
      await world.until('work', () => world.agents.get(name)?.state === 'working', 9, 1);
      world.agent(name).silent = true;
      world.now += 100_000;
      await world.tick();
      await world.boot(name).beat();
    }
    await world.tick();
    assert.equal(await status(), 'failed');
  });
});

describe('a resume that was published before a stop and is delivered after it', () => {
  it('leaves the pause of a run by its breaker', async () => {
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

  it('leaves the stops of creates of a pool and of a zone', async () => {
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
    assert.notEqual((await zoneOf(world))?.boots.stopped_at, null);
    await world.store.transaction(async tx => {
      const pool = await poolRecords.get(tx, world.deps.config.pool);
      poolRecords.set(tx, {...pool, boots: (await zoneOf(world))?.boots ?? pool.boots});
      tx.delete(`control/${id}`);
    });
    await deliver();
    assert.notEqual((await poolRecords.get(world.store, world.deps.config.pool)).boots.stopped_at, null);
    const {reason} = (await world.store.get(`control/${id}`)) ?? {};
    assert.match(String(reason), /^outdated: the creates of pool tpu stopped later/);
  });
});

describe('a document of system/ that cannot be read', () => {
  it('of the time served ends no limit: the next proof replaces it', async () => {
    const world = await aFleet(2);
    await world.store.transaction(async tx =>
      tx.set('system/served', {...(await tx.get('system/served')), failed_pings: -1}),
    );
    world.agent(`tpu-${ZONE}-0`).silent = true;
    await wait(world, 20);
    assert.equal((await firstLives(world)).length, 1);
  });

  it('of the creates stops no create', async () => {
    const world = await aFleet(2);
    await world.store.transaction(async tx => tx.set('system/creates', {creates: 'x'}));
    world.tpus.node(`tpu-${ZONE}-0`).state = 'PREEMPTED';
    await world.until('another node', () => world.tpus.made.length === 3, 9, 1);
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
