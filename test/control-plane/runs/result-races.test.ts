/** Ends of runs beside failed calls, other ticks and new streams. */
import assert from 'node:assert/strict';
import {streamRecords} from '../../../shared/control-plane/documents/documents.ts';
import {NoAnswer} from '../../support/fakes/interleaver.ts';
import {seeded} from '../../support/fakes/kernel.ts';
import type {World} from '../../support/world/control-plane-harness.ts';
import {ORDERS} from '../../support/world/every-order.ts';
import {someLines} from '../../support/world/shard-plan.ts';
import {aStoredWorld, deliverFinish, endRun, MANIFEST, resultIn} from '../../support/world/stored-run.ts';

/** An odd number, because the calls die before and after their effect in turn. */
const EVERY_CALL = Number(process.env.GLEANER_CALLS ?? 3);

describe('the manifest of a run that ends', () => {
  it('is written by a later message when the tick or the message that ends the run died at every third call (GLEANER_CALLS=1: every call) @full', async () => {
    const calls = await callsOfAnEnd(await aStoredWorld());
    assert.ok(calls > 10);
    for (let dies = 0; dies < calls; dies += EVERY_CALL) {
      const world = await aStoredWorld();
      let call = 0;
      // Half of them die before the call does anything, the others after it did.
      world.outage.begin(1, () => (call++ < dies ? 1 : dies % 2 === 0 ? 0.2 : 0.7));
      const hasEnded = await endRun(world).catch((error: Error) => {
        assert.ok(error instanceof NoAnswer);
        return false;
      });
      assert.equal(hasEnded, false, `call ${dies}`);
      world.outage.end();
      assert.ok((await world.run('my-run'))?.status !== 'completed' || resultIn(world), `call ${dies}`);
      await world.untilAsleep();
      assert.equal((await world.run('my-run'))?.status, 'completed', `call ${dies}`);
      assert.equal(resultIn(world)?.streams, 2, `call ${dies}`);
    }
  });

  it('keeps no TPU and holds back no other run while it cannot be written', async () => {
    const world = await aStoredWorld();
    world.drop('other', 0, someLines(3, 'other'));
    const replace = world.deps.objects.replace.bind(world.deps.objects);
    world.deps.objects.replace = async (name, ...rest) => {
      if (name !== MANIFEST) return replace(name, ...rest);
      throw new Error('Failed to replace the manifest: permission denied');
    };
    await world.minutes(20);
    const errors = world.logs.filter(({severity}) => severity === 'ERROR');
    assert.ok(errors.length > 0);
    for (const {message} of errors)
      assert.match(message, /^Task finish-my-run failed, .*: Failed to replace .* permission denied/);
    assert.deepEqual(
      [
        (await world.run('my-run'))?.status,
        (await world.run('other'))?.streams_completed,
        world.tpus.nodes.size,
      ],
      ['active', 1, 0],
    );
    world.deps.objects.replace = replace;
    await world.untilAsleep();
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.equal(resultIn(world)?.streams, 2);
  });

  /** Runs `between` once, before or after the next call of this verb with this object. */
  function once(
    world: World,
    when: 'before' | 'after',
    verb: 'read' | 'replace',
    object: string,
    between: () => Promise<unknown>,
  ): void {
    const port = world.objects as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
    const call = port[verb]?.bind(world.objects);
    port[verb] = async (...args) => {
      if (!call || args[0] !== object) return call?.(...args);
      port[verb] = call;
      if (when === 'before') await between();
      const answer = await call(...args);
      if (when === 'after') await between();
      return answer;
    };
  }

  /** A further stream comes, is stored, and another message completes the run. */
  async function aStreamComesAndGoes(world: World): Promise<void> {
    world.drop('my-run', 2, someLines(2, 'late'));
    await world.until('the result of three streams', () => resultIn(world)?.streams === 3);
    await assertThree(world);
  }

  async function assertThree(world: World): Promise<void> {
    const run = await world.run('my-run');
    assert.deepEqual([run?.status, run?.streams_completed, resultIn(world)?.streams], ['completed', 3, 3]);
  }

  async function assertEndsWithThree(world: World): Promise<void> {
    assert.ok(await endRun(world));
    await world.untilAsleep();
    await assertThree(world);
  }

  it('has the result, also when it was edited just before the write', async () => {
    const world = await aStoredWorld();
    const edited = JSON.stringify(JSON.parse(world.text(MANIFEST)), null, 4);
    once(world, 'before', 'replace', MANIFEST, async () => world.objects.put(MANIFEST, edited));
    assert.ok(await endRun(world));
    assert.equal((await world.run('my-run'))?.status, 'completed');
    assert.equal(resultIn(world)?.streams, 2);
  });

  it('keeps a stream that came after another message read the streams, which died after it wrote', async () => {
    const world = await aStoredWorld();
    let hasCome = false;
    once(world, 'before', 'replace', MANIFEST, async () => {
      await aStreamComesAndGoes(world);
      hasCome = true;
    });
    const replace = world.deps.objects.replace.bind(world.deps.objects);
    world.deps.objects.replace = async (name, ...rest) => {
      const outcome = await replace(name, ...rest);
      if (hasCome) throw new NoAnswer('it died');
      return outcome;
    };
    assert.equal(await endRun(world), false);
    world.deps.objects.replace = replace;
    await world.untilAsleep();
    assert.equal(resultIn(world)?.streams, 3);
  });

  it('and the totals of its run count a stream that is registered and stored between result and end', async () => {
    const world = await aStoredWorld();
    once(world, 'before', 'replace', MANIFEST, () => aStreamComesAndGoes(world));
    await assertEndsWithThree(world);
  });

  it('counts a stream that is registered and stored after the result was written', async () => {
    const world = await aStoredWorld();
    once(world, 'after', 'replace', MANIFEST, async () => {
      world.drop('my-run', 2, someLines(2, 'late'));
      while (await world.deliverNext('object'));
      await world.store.transaction(async tx => {
        const stream = (await streamRecords.get(tx, 'my-run', '002')) ?? assert.fail();
        streamRecords.set(tx, {...stream, status: 'completed', finished: true});
      });
    });
    await assertEndsWithThree(world);
  });

  it('is written again where a rebuild takes a shard from a stream after the result was written', async () => {
    const world = await aStoredWorld();
    once(world, 'after', 'replace', MANIFEST, () =>
      world.store.transaction(async tx => {
        const stream = (await streamRecords.get(tx, 'my-run', '001')) ?? assert.fail();
        streamRecords.set(tx, {...stream, status: 'pending', finished: false});
      }),
    );
    assert.ok(await endRun(world));
    assert.equal((await world.run('my-run'))?.status, 'active');
  });

  it('has the tokens of a stream that was rebuilt after the streams were read', async () => {
    const world = await aStoredWorld();
    await world.tick();
    const {store} = world.deps;
    const {sum} = store;
    let tokens = 0;
    store.sum = async (collection, fields) => {
      store.sum = sum;
      await store.transaction(async tx => {
        const stream = (await streamRecords.get(tx, 'my-run', '000')) ?? assert.fail();
        tokens = stream.total_tokens + 5;
        streamRecords.set(tx, {...stream, total_tokens: tokens});
      });
      return sum(collection, fields);
    };
    assert.ok(await deliverFinish(world));
    const other = (await world.stream('my-run', '001'))?.total_tokens ?? 0;
    assert.deepEqual([tokens > 5, resultIn(world)?.tokens], [true, tokens + other]);
  });

  for (const read_ms of [0, 15_000])
    it(`counts three streams in any order of two ends, an event and a worker, where a read takes ${read_ms} ms`, async () => {
      for (let seed = 0; seed < ORDERS; seed++) {
        const random = seeded(seed);
        const world = await aStoredWorld([someLines(2, 'a'), someLines(3, 'b')]);
        const read = world.deps.objects.read.bind(world.deps.objects);
        world.deps.objects.read = (name, options) => {
          if (name.endsWith('metadata.json')) world.now += read_ms;
          return read(name, options);
        };
        world.drop('my-run', 2, someLines(2, 'late'));
        await world.interleaver.run(random, [
          () => endRun(world),
          () => endRun(world),
          () => world.deliverNext('object'),
          async () => {
            for (let step = 0; step < 4; step++)
              for (const agent of world.agents.values()) await agent.step();
          },
        ]);
        await world.untilAsleep();
        const run = await world.run('my-run');
        assert.deepEqual([run?.status, run?.streams_completed], ['completed', 3], `seed ${seed}`);
        assert.deepEqual([resultIn(world)?.streams, resultIn(world)?.samples], [3, 7], `seed ${seed}`);
      }
    });
});

/** Calls of ports that the tick and the message make that complete the run of this world. */
async function callsOfAnEnd(world: World): Promise<number> {
  let calls = 0;
  world.outage.begin(1, () => {
    calls += 1;
    return 1;
  });
  assert.ok(await endRun(world));
  world.outage.end();
  assert.ok(resultIn(world));
  return calls;
}
