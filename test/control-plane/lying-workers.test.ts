/** Machines that store nothing, or report what cannot be: they may be broken, or in wrong hands. */
import assert from 'node:assert/strict';
import type {FakeAgent} from '../world/agent.ts';
import {untilFailed} from '../world/scenes/one-worker.ts';
import {A0, ONE_SLOT} from '../world/scenes/places.ts';
import {someLines} from '../world/shard-plan.ts';
import {World} from '../world/world.ts';

const STREAMS = 8;

async function aWorldWithStreams(count = STREAMS): Promise<{world: World; agent: FakeAgent}> {
  const world = new World(ONE_SLOT);
  for (let index = 0; index < count; index++) world.drop('my-run', index, someLines(4, `${index} `));
  await world.until('an agent', () => world.agents.get(A0)?.state === 'asking', 9, 1);
  return {world, agent: world.agent(A0)};
}

/** Leases streams and gives them back until the machine gets no more. Returns the streams that it had. */
async function walk(agent: FakeAgent, release: () => Promise<unknown>): Promise<string[]> {
  const had: string[] = [];
  for (let tries = 0; tries < 30; tries++) {
    await agent.ask();
    if (!agent.lease) continue;
    had.push(agent.lease.stream);
    await release();
  }
  return had;
}

async function assertAllStored(world: World): Promise<void> {
  await world.untilAsleep();
  assert.equal((await world.run('my-run'))?.status, 'completed');
  for (let index = 0; index < STREAMS; index++)
    await world.assertStoredOnce('my-run', `00${index}`, someLines(4, `${index} `));
}

describe('a machine whose leases end without a stored shard', () => {
  for (const outcome of ['drained', 'preempted', 'completed'])
    it(`gets three leases, and is replaced, where it gives them back as ${outcome}`, async () => {
      const {world, agent} = await aWorldWithStreams();
      const had = await walk(agent, () => agent.release(outcome));
      assert.equal(had.length, 3, had.join());
      assert.match(
        (await world.timeline('worker')).join(),
        /is replaced: .*its last 3 leases ended without a stored shard/,
      );
      await assertAllStored(world);
      assert.ok(world.tpus.made.includes(`${A0}#2`), world.tpus.made.join());
    });

  it('fails no stream alone, and is replaced', async () => {
    const {world, agent} = await aWorldWithStreams();
    const had = await walk(agent, () => agent.release('failed', {kind: 'stream', reason: 'forged'}));
    assert.equal(had.length, 3, had.join());
    const streams = await world.store.query('runs/my-run/streams');
    assert.ok(streams.every(({data}) => data.status === 'pending' && Number(data.failures) <= 1));
    await assertAllStored(world);
  });
});

describe('a machine that reports more downloads than it can need', () => {
  for (const isIdle of [true, false])
    it(`is replaced and billed to nobody, ${isIdle ? 'without work' : 'at work'}`, async () => {
      const world = new World({...ONE_SLOT, GLEANER_MAX_BUDGET_USD: '50'});
      for (let index = 0; index < STREAMS; index++) world.drop('my-run', index, someLines(4, `${index} `));
      const state = isIdle ? 'asking' : 'working';
      await world.until(state, () => world.agents.get(A0)?.state === state, 9, 1);
      world.agent(A0).received.nat_bytes = Number.MAX_SAFE_INTEGER;
      await world.agent(A0).beat();
      await assertAllStored(world);
      assert.match(
        (await world.timeline('worker')).join(),
        /is replaced: .*its host 0 reports \d+ downloaded bytes/,
      );
      assert.ok(world.tpus.made.includes(`${A0}#2`), world.tpus.made.join());
      assert.ok(Number((await world.run('my-run'))?.spent_usd) < 10);
    });
});

describe('a stream that no machine can read', () => {
  it('fails after failures of three machines', async () => {
    const {world} = await aWorldWithStreams(1);
    await untilFailed(world, 90, agent => {
      agent.failure = {kind: 'stream', reason: 'line 1 is no JSON'};
    });
    const {status, failures, failed_workers} = (await world.stream('my-run', '000')) ?? {};
    assert.deepEqual({status, failures}, {status: 'failed', failures: 3});
    assert.deepEqual(
      failed_workers,
      [1, 2, 3].map(incarnation => `${A0}/${incarnation}`),
    );
  });
});
