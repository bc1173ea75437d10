/** Runs whose model or spec cannot be used, whose model does not arrive, or whose samples are all rejected. */
import assert from 'node:assert/strict';
import {explainRun} from '../../../client/explanations/explain.ts';
import {waitText} from '../../../shared/domain/records/constraint.ts';
import {aFleet, RUN, wait} from '../../world/scenes/fleet.ts';
import {type Case, runCases} from '../../world/scenes/fleet-cases.ts';
import {ZONE} from '../../world/scenes/places.ts';
import {BAD_LINE, someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

const UNSUPPORTED = {kind: 'model', reason: 'the family "mamba" is not supported'} as const;
const SILENT_HUB = {kind: 'hub', reason: 'huggingface.co does not answer'} as const;

/** A fleet of two whose agents fail at every stream of the run that has stored nothing, with three streams more. */
async function aFailingFleet(
  failure: typeof UNSUPPORTED | typeof SILENT_HUB,
  set: Record<string, string> = {},
): Promise<World> {
  const world = await aFleet(2, set);
  for (const index of [2, 3, 4]) world.drop(RUN, index, someLines(4, `s${index}`));
  for (const agent of world.agents.values()) agent.failure = failure;
  return world;
}

const streamsOf = async (world: World) =>
  (await world.store.query(`runs/${RUN}/streams`)).map(({data}) => data);

const CASES: Case[] = [
  {
    name: 'a failure that every stream has ends the run at its first stream, and retry tries it again',
    given: () => aFailingFleet(UNSUPPORTED),
    when: world => world.minutes(4),
    then: async world => {
      const run = await world.run(RUN);
      assert.equal(run?.status, 'failed');
      assert.match(run?.reason ?? '', /"mamba" is not supported.*gleaner run start my-run-2 --from my-run/);
      const streams = await streamsOf(world);
      assert.ok(
        streams.reduce((sum, {failures}) => sum + Number(failures), 0) <= 2,
        'a lease of each worker at most',
      );
      assert.equal(streams.filter(({status}) => status === 'pending').length, run?.streams_pending);
      assert.deepEqual([...world.tpus.nodes.keys()], [], 'no TPU is left');
      world.drop(RUN, 5, someLines(4));
      await wait(world, 20);
      assert.equal((await world.run(RUN))?.status, 'failed', 'a further stream would fail in the same way');
      world.onAgent = agent => {
        agent.failure = undefined;
      };
      world.control({action: 'retry', run: RUN});
      await world.untilAsleep(120);
      const after = await world.run(RUN);
      assert.deepEqual([after?.status, after?.reason, after?.streams_completed], ['completed', null, 6]);
    },
  },
  {
    name: 'a failure of the model after a stored shard is a failure of its stream alone',
    given: async () => {
      const world = await aFleet(2);
      await world.minutes(3);
      return world;
    },
    when: async world => {
      const [agent] = world.agents.values();
      assert.ok(agent);
      agent.failure = UNSUPPORTED;
      await world.minute();
      agent.failure = undefined;
      await world.minutes(1);
    },
    then: async world => {
      assert.equal((await world.run(RUN))?.status, 'active');
      const failures = (await streamsOf(world)).map(stream => stream.failures);
      assert.equal(failures.filter(count => Number(count) > 0).length, 1);
    },
  },
  {
    name: 'a model that does not arrive in two tries frees the TPUs, which serve another run',
    given: () => aFailingFleet(SILENT_HUB),
    when: async world => {
      world.drop('other-run', 0, someLines(4, 'other'));
      for (let minute = 0; minute < 8; minute++) {
        for (const agent of world.agents.values())
          agent.failure = agent.lease?.run === RUN ? SILENT_HUB : undefined;
        await world.minute();
      }
    },
    then: async world => {
      const run = await world.run(RUN);
      assert.equal(run?.status, 'paused');
      assert.match(run?.reason ?? '', /its model did not arrive in 2 tries: huggingface.co does not answer/);
      const streams = await streamsOf(world);
      assert.deepEqual(
        [...new Set(streams.map(({status, failures, faults}) => `${status} ${failures} ${faults}`))],
        ['pending 0 0'],
      );
      assert.equal((await world.run('other-run'))?.status, 'completed');
      const lives = (await world.store.query('workers')).map(({data}) => data.incarnation);
      assert.deepEqual(lives, [1, 1], 'no node is replaced for the hub');
    },
  },
  {
    name: 'a run without its model tries it again by itself, later after each further miss, unless a person paused the run',
    given: () =>
      aFailingFleet(SILENT_HUB, {GLEANER_MODEL_RETRY_S: '900', GLEANER_LONGEST_MODEL_RETRY_S: '1200'}),
    when: world => world.minutes(4),
    then: async world => {
      const failing = (failure: typeof SILENT_HUB | undefined) => {
        const fail = (agent: {failure?: unknown}) => Object.assign(agent, {failure});
        world.onAgent = fail;
        for (const agent of world.agents.values()) fail(agent);
      };
      failing(SILENT_HUB);
      const nextTry = async (least_s: number, most_s: number) => {
        const run = await world.run(RUN);
        assert.ok(run?.model_next_at, run?.reason ?? run?.status);
        const wait_s = (Date.parse(run.model_next_at) - world.now) / 1000;
        assert.ok(wait_s > least_s && wait_s <= most_s, `${wait_s} s`);
        assert.match(run.reason ?? '', new RegExp(`; next try at ${run.model_next_at.slice(11, 16)}$`));
        assert.match(
          waitText(explainRun(run) ?? assert.fail()),
          /^run my-run waits for its model \(since \d\d:\d\d\): .*; next try/,
        );
        return run.model_misses;
      };
      assert.equal(await nextTry(600, 900), 2, 'a TPU that misses after the pause counts nothing');
      const missed = async () => ((await world.run(RUN))?.model_misses ?? 0) > 2;
      await world.until('the next miss', missed, 30, 1);
      assert.equal(await nextTry(900, 1200), 3);
      world.control({action: 'pause', run: RUN});
      await world.minutes(30);
      const paused = await world.run(RUN);
      assert.deepEqual([paused?.status, paused?.reason], ['paused', 'a person paused it']);
      world.control({action: 'resume', run: RUN});
      await world.until('two misses', async () => (await world.run(RUN))?.status === 'paused', 30, 1);
      failing(undefined);
      await world.untilAsleep(120);
      assert.equal((await world.run(RUN))?.status, 'completed', 'the model arrives, and no message is sent');
    },
  },
  {
    name: 'a run whose samples are all rejected has failed',
    given: async () => new World({GLEANER_ZONES: ZONE}),
    when: async world => {
      world.drop(RUN, 0, `${BAD_LINE}\n${BAD_LINE}\n`);
      await world.untilAsleep(60);
    },
    then: async world => {
      const run = await world.run(RUN);
      assert.equal(run?.status, 'failed');
      assert.match(
        run?.reason ?? '',
        /^all 2 samples were rejected: .*gleaner run start my-run-2 --from my-run/,
      );
      assert.equal(run?.streams_completed, 1);
    },
  },
];

describe('a run whose model or samples cannot be used', () => runCases(CASES));
