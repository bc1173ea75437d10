/** Signals of log entries, which the alerts of a deployment count. */
import assert from 'node:assert/strict';
import {Undelivered} from '../../../shared/contracts/errors.ts';
import {SIGNALS} from '../../../shared/control-plane/calls/log.ts';
import {aFleet, silence, wait, waitInSilence} from '../../world/scenes/fleet.ts';
import {aStoringFleet} from '../../world/scenes/lost-store.ts';
import {aPricedRun, USD_PER_MINUTE} from '../../world/scenes/priced-run.ts';
import {aWorldAfter} from '../../world/scenes/waits.ts';
import {BAD_LINE, someLines} from '../../world/shard-plan.ts';
import {World} from '../../world/world.ts';

type Signal = (typeof SIGNALS)[number];

const signalsOf = ({logs}: World) => new Set(logs.flatMap(({signal}) => signal ?? []));

/** A world after each fault. */
const WORLDS: Record<Signal, () => Promise<World>> = {
  'budget-spent': async () => {
    const world = await aPricedRun({budget_usd: 6 * USD_PER_MINUTE});
    await world.untilAsleep(20);
    return world;
  },
  'creates-late': async () => {
    const world = new World({GLEANER_ZONES: 'us-central1-a'});
    world.drop('my-run', 0, someLines(4));
    await world.deliverNext('object');
    // The time of a transaction passes between the plan and its first decision.
    world.outage.around = async (verb, effect) => {
      if (verb === 'transaction') world.now += 61_000;
      return effect();
    };
    await world.tick();
    return world;
  },
  'creates-stopped': async () => {
    const world = new World({GLEANER_ZONES: 'us-central1-a', GLEANER_WORKERS_PER_ZONE: '10'});
    world.isStillborn = () => true;
    for (let index = 0; index < 10; index++) world.drop('my-run', index, someLines(4, `s${index}`));
    await wait(world, 50);
    return world;
  },
  'document-left-alone': () =>
    aWorldAfter(aFleet(1), 0, world => world.edit('runs/my-run', {status: 'archived'})),
  'job-failed': async () => {
    const world = new World();
    await world.writeJob('no-code', {timeout: '5m'});
    await world.deliverAll();
    return world;
  },
  'job-long': async () => {
    const world = new World({GLEANER_LONG_JOB_S: '60'});
    world.onAgent = agent => {
      agent.jobEnd = null;
    };
    await world.writeJob('long', {code: 'result = 1', timeout: 3600});
    await world.minutes(10);
    return world;
  },
  'notices-failing': async () => {
    const world = new World({GLEANER_NOTIFY: 'json'});
    world.receiver.refusal = () => new Undelivered(false, 'the receiver is away');
    world.drop('my-run', 0, someLines(1));
    await world.untilAsleep(60);
    await world.minutes(10);
    return world;
  },
  orphans: () => aWorldAfter(aStoringFleet(20), 0, world => world.wipe()),
  'ping-failed': () => aWorldAfter(aFleet(1), 1, world => Object.assign(world, {isPingRefused: true})),
  'run-failed': async () => {
    const world = new World({GLEANER_ZONES: 'us-central1-a'});
    world.drop('my-run', 0, someLines(20));
    for (let minute = 0; minute < 40 && !signalsOf(world).has('run-failed'); minute++) {
      for (const agent of world.agents.values())
        agent.failure = {kind: 'stream', reason: 'line 3 is too odd'};
      await world.minute(1);
    }
    return world;
  },
  'run-paused': async () => {
    const world = await aFleet(10);
    for (let minute = 0; minute < 60 && !signalsOf(world).has('run-paused'); minute++) {
      silence(world, name => world.agent(name).state === 'working');
      await world.minute(1);
    }
    return world;
  },
  'samples-rejected': async () => {
    const world = new World({GLEANER_ZONES: 'us-central1-a'});
    world.drop('my-run', 0, `${BAD_LINE}\n${BAD_LINE}\n${someLines(1)}`);
    await world.untilAsleep(60);
    return world;
  },
  'silence-guard': () => aWorldAfter(aFleet(10), 0, world => waitInSilence(world, 4)),
  'tick-completed': () => aWorldAfter(new World(), 0, () => {}),
};

describe('the signal', () => {
  for (const signal of SIGNALS)
    it(`${signal} is in the log after its cause`, async () => {
      const found = signalsOf(await WORLDS[signal]());
      assert.ok(found.has(signal), [...found].join());
    });

  it('tick-completed is not in the log after a tick that failed', async () => {
    const world = new World();
    world.deps.tpus.list = async () => {
      throw new Error('no answer');
    };
    await assert.rejects(world.tick());
    assert.ok(!signalsOf(world).has('tick-completed'));
  });

  it('of a fault is not in the log of a run that goes well', async () => {
    const world = await aFleet(2);
    await wait(world, 3);
    assert.deepEqual([...signalsOf(world)], ['tick-completed']);
  });
});
