/** Silence of many workers at once, which the silence guard of their zone holds. */
import assert from 'node:assert/strict';
import {workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import {isAlive} from '../../../shared/domain/records/worker.ts';
import {iso} from '../../../shared/domain/time.ts';
import {
  aFleet,
  errors,
  faults,
  firstLives,
  RUN,
  silence,
  silenceGuardOf,
  wait,
  waitInSilence,
  workersOf,
} from '../../world/scenes/fleet.ts';
import {type Case, ended, runCases} from '../../world/scenes/fleet-cases.ts';
import {ZONE} from '../../world/scenes/places.ts';
import {planShards, shardBytes, shardMetadata, someLines} from '../../world/shard-plan.ts';

const OTHER_ZONE = 'europe-west4-b';
const TWO_ZONES = {GLEANER_ZONES: `${ZONE},${OTHER_ZONE}`};

const CASES: Case[] = [
  {
    name: 'in a pool of three that are all silent, one is the canary, and its first word ends the others',
    given: () => aFleet(3),
    when: async world => {
      silence(world);
      await wait(world, 3);
      assert.deepEqual(
        [await ended(world, 3), (await silenceGuardOf(world))?.held, await faults(world)],
        [1, 2, 1],
      );
      await wait(world, 7);
    },
    then: async world => {
      assert.deepEqual([await ended(world, 3), await faults(world)], [3, 3]);
      await wait(world, 12);
      assert.equal(await silenceGuardOf(world), null, 'the evidence goes');
    },
  },
  {
    name: 'two ticks at once replace one share of the silent workers',
    when: async world => {
      await waitInSilence(world, 2);
      world.now += 60_000;
      await world.interleaver.run(() => 0.5, [() => world.tick(), () => world.tick()]);
    },
    then: async world => assert.equal(await ended(world, 10), 2),
  },
  {
    name: 'a silence guard holds silent workers, counts their dollars, and says so',
    when: async world => {
      await waitInSilence(world, 4);
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
      const silence_guard = await silenceGuardOf(world);
      const [held] = await firstLives(world);
      assert.equal(silence_guard?.held, 8);
      assert.equal(silence_guard?.held_usd_per_hour?.toFixed(3), (8 * Number(held?.usd_per_hour)).toFixed(3));
      assert.ok(errors(world, /keeps 8 silent workers for \$\d+\.\d\d an hour/).length > 0);
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
      await waitInSilence(world, 4);
      world.isStillborn = () => false;
      for (const agent of world.agents.values()) if (agent.incarnation === 1) agent.silent = false;
      await wait(world, 16);
    },
    then: async world => {
      assert.deepEqual(
        [await ended(world, 10), await faults(world), await silenceGuardOf(world)],
        [2, 2, null],
      );
    },
  },
  {
    name: 'agents of a zone that are cut off for ten hours end, and all slots are at work again after a resume @long',
    when: world => waitInSilence(world, 600),
    then: async world => {
      assert.equal((await firstLives(world)).length, 0, 'after six hours of silence the rest end');
      assert.equal(
        (await world.run(RUN))?.status,
        'active',
        'silence that no canary has judged pauses no run',
      );
      world.isStillborn = () => false;
      world.control({action: 'resume', pool: 'tpu'});
      await world.minutes(30, 1);
      assert.equal((await workersOf(world)).filter(isAlive).length, 10, 'all slots are at work again');
    },
  },
];

describe('the silence guard', () => {
  runCases(CASES);
});

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

  it('ends no healthy worker where the network heals and a canary speaks first', async () => {
    const world = await aFleet(20);
    await waitInSilence(world, 4);
    const canaries = () => [...world.agents.values()].filter(({incarnation}) => incarnation > 1);
    await world.until('a canary that boots', () => canaries().length > 0, 9, 0);
    const held = (await firstLives(world)).length;
    for (const agent of world.agents.values()) agent.silent = false;
    world.isStillborn = () => false;
    for (const canary of canaries()) await canary.beat();
    world.now += 1000;
    await world.tick();
    await world.minutes(3, 1);
    const {status, reason} = (await world.run(RUN)) ?? {};
    assert.deepEqual([(await firstLives(world)).length, status], [held, 'active'], String(reason));
    assert.ok(held >= 16 && (await faults(world)) <= 4);
  });

  it('for six hours ends a worker though the shards of another cannot be listed', async () => {
    const world = await aFleet(6);
    await waitInSilence(world, 6);
    const held = await firstLives(world);
    const [first] = held;
    await world.edit('system/served', {gaps: []});
    await world.store.transaction(async tx => {
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
    const names = (await firstLives(world)).map(({name}) => name);
    assert.deepEqual(names, [first?.name]);
  });

  it('ends a fifth of them and one an hour, and after six hours the rest, but for one that stored a shard since @full', async () => {
    const world = await aFleet(10);
    await waitInSilence(world, 10);
    const [held] = (await firstLives(world)).toReversed();
    const [, stream = ''] = held?.suspect?.work.split('/') ?? [];
    await wait(world, 290);
    const lost = await ended(world, 10);
    assert.ok(lost > 2 && lost <= 2 + 5, `${lost} of 10 ended in five hours`);
    const {spec_hash = ''} = (await world.run(RUN)) ?? {};
    const {crc32c = '', epoch = 0, lease_key} = (await world.stream(RUN, stream)) ?? {};
    const source = {run: RUN, stream, spec_hash: String(spec_hash), dataset: {crc32c}};
    const [plan] = planShards(someLines(20));
    if (!plan) assert.fail();
    world.objects.put(
      `activations/${RUN}/tpu_${Number(stream)}/shard_0001.safetensors`,
      shardBytes(plan, source),
      shardMetadata(plan, source, held?.suspect?.epoch ?? epoch, String(lease_key)),
    );
    await wait(world, 62);
    const names = (await firstLives(world)).map(({name}) => name);
    assert.deepEqual(names, [held?.name]);
  });
});
