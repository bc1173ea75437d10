/** Ends of runs beside failed writes, other ticks and new streams. */
import assert from 'node:assert/strict';
import {streamRecords} from '../../../shared/control-plane/documents/documents.ts';
import {NoAnswer} from '../../world/interleaver.ts';
import {aStoredWorld, deliverFinish, endRun, MANIFEST, resultIn} from '../../world/scenes/stored-run.ts';
import {someLines} from '../../world/shard-plan.ts';
import type {World} from '../../world/world.ts';

describe('the manifest of a run that ends', () => {
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
});
