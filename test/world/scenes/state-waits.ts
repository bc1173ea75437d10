/** Each ceiling of the deployment, and each state of a run, a stream, a job and a TPU: a test world, and what `why` says of it. */
import type {Ceilings} from '../../../shared/domain/billing/ceilings.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {someLines} from '../shard-plan.ts';
import {World} from '../world.ts';
import {wait} from './fleet.ts';
import {aWorldAtWork} from './jobs.ts';
import {
  aSilentWorker,
  aTakenWorker,
  aWorkingWorld,
  aWorldWithAShard,
  aWorldWithAStream,
} from './one-worker.ts';
import {A0, ONE_SLOT, ZONE} from './places.ts';
import {USD_PER_MINUTE, ONE_SLOT as WITH_PRICE} from './priced-run.ts';
import {aWorldWithFast} from './second-pool.ts';
import {aWorldAfter, aWorldWith, LINES, type Wait} from './waits.ts';

const STREAM = 'my-run/000';
const JOB = 'my-job';
const NOTHING = {kind: null, about: null} as const;

async function aCompletedRun(): Promise<World> {
  const world = aWorldWithAStream(2);
  await world.untilAsleep();
  return world;
}

/** A world with a job that no event names, or that on-job takes up. */
async function aWaitingJob(isTakenUp: boolean, fields: Document = {}): Promise<World> {
  const world = new World(ONE_SLOT);
  await world.writeJob(JOB, {code: 'result = 1', status: 'pending', ...fields});
  if (isTakenUp) await world.deliverNext('job');
  await world.tick();
  return world;
}

async function anEndedJob(end: object): Promise<World> {
  const world = await aWorldAtWork();
  Object.assign(world.agent(A0), {jobEnd: end});
  await world.minutes(2, 1);
  return world;
}

/** The model of the run is of a source that a later deployment does not allow. */
async function afterOtherSources(): Promise<World> {
  const world = new World(ONE_SLOT);
  world.objects.put('datasets/my-run/run.json', '{"model": "other/model"}');
  world.drop('my-run', 0, LINES);
  await world.deliverAll();
  world.redeploy({GLEANER_MODEL_SOURCES: 'hub:Qwen/'});
  await world.minutes(4);
  return world;
}

async function overTwoPools(): Promise<World> {
  const world = await aWorldWithFast({GLEANER_MAX_WORKERS: '3'});
  for (const index of [0, 1]) world.drop('quick', index, someLines(400));
  await world.minutes(4, 1);
  world.redeploy({...ONE_SLOT, GLEANER_MAX_WORKERS: '2'});
  world.drop('my-run', 0, LINES);
  await wait(world, 2);
  return world;
}

const aWorldWithNoTick = () => aWorldWith(() => {}, 0);
const aSpentMonth = () =>
  aWorldWith(() => {}, 12, {...WITH_PRICE, GLEANER_MAX_BUDGET_USD: String(4 * USD_PER_MINUTE)});

export const CEILING_WAITS: Record<keyof Ceilings, Wait> = {
  max_workers: {
    name: 'a ceiling of TPUs at once',
    given: overTwoPools,
    ...{kind: 'ceiling', about: 'only 0 TPUs of pool tpu', evidence: /GLEANER_MAX_WORKERS/},
    next_step: /max_workers/,
  },
  max_budget_usd: {
    name: 'a ceiling of dollars a month',
    given: () =>
      aWorldAfter(aSpentMonth(), 2, world => world.writeJob(JOB, {code: 'result = 1', status: 'pending'})),
    of: JOB,
    ...{kind: 'budget', about: 'the month', next_step: /max_budget_usd/},
    evidence: /of the deployment's month, .*GLEANER_MAX_BUDGET_USD/,
  },
  allowed_zones: {
    name: 'a zone that the deployment no longer allows',
    given: async () => {
      const world = await aWorldAfter(aWorldWithNoTick(), 1, {action: 'scale', zones: [ZONE]});
      world.redeploy({GLEANER_ZONES: 'europe-west4-b', GLEANER_ALLOWED_ZONES: 'europe-west4-b'});
      await wait(world, 2);
      return world;
    },
    ...{kind: 'ceiling', about: 'no zone of pool tpu', next_step: /gleaner scale tpu --zones/},
  },
  model_sources: {
    name: 'a model of a source that the deployment no longer allows',
    given: afterOtherSources,
    ...{kind: 'paused', about: 'my-run', evidence: /GLEANER_MODEL_SOURCES/},
  },
  has_internet: {
    name: 'a model of the hub in a deployment without the internet',
    given: () => aWorldWith(() => {}, 3, {GLEANER_INTERNET: 'false'}),
    ...{kind: 'no-spec', about: 'my-run', evidence: /gleaner models mirror/},
  },
};

export const STATE_WAITS: Record<string, Wait> = {
  'run active': {name: 'no wait of a run at work', given: aWorkingWorld, ...NOTHING},
  'run paused': {
    name: 'the time of a pause, of a budget too',
    given: aSpentMonth,
    ...{kind: 'budget', about: 'the month', since_at: /^2026-/, evidence: /of the deployment's month/},
  },
  'run failed': {
    name: 'a run whose only stream failed',
    given: () => aWorldAfter(aWorkingWorld(), 4, {action: 'cancel', run: 'my-run', stream: '000'}),
    ...{kind: 'failed', about: 'run my-run', evidence: /stream 000: cancelled/},
  },
  'run completed': {name: 'no wait of a completed run', given: aCompletedRun, ...NOTHING},
  'run stopped': {
    name: 'no wait of a stopped run',
    given: () => aWorldAfter(aWorkingWorld(), 2, {action: 'stop', run: 'my-run'}),
    ...NOTHING,
  },
  'stream pending': {
    name: 'the pause of its run, of a stream',
    given: () => aWorldAfter(aWorldWithNoTick(), 2, {action: 'pause', run: 'my-run'}),
    of: STREAM,
    ...{kind: 'paused', about: 'my-run', evidence: /a person/},
  },
  'stream in_progress': {name: 'no wait of a stream at work', given: aWorkingWorld, of: STREAM, ...NOTHING},
  'stream completed': {name: 'no wait of a complete stream', given: aCompletedRun, of: STREAM, ...NOTHING},
  'stream failed': {
    name: 'a stream that a person cancelled',
    given: () => aWorldAfter(aWorkingWorld(), 4, {action: 'cancel', run: 'my-run', stream: '000'}),
    of: STREAM,
    ...{kind: 'failed', about: 'stream my-run/000', evidence: /cancel/},
  },
  'job pending': {
    name: 'no wait of a job that a tick takes up',
    given: async () => {
      const world = new World(ONE_SLOT);
      await world.writeJob(JOB, {code: 'result = 1', status: 'pending'});
      return world;
    },
    of: JOB,
    ...NOTHING,
  },
  'job scheduled': {
    name: 'a job whose TPU is requested',
    given: () => aWaitingJob(true),
    of: JOB,
    ...{kind: 'coming', about: A0, evidence: /is being created/},
  },
  'job running': {name: 'no wait of a job at work', given: aWorldAtWork, of: JOB, ...NOTHING},
  'job completed': {
    name: 'no wait of a completed job',
    given: () => anEndedJob({outcome: 'completed', result: '1'}),
    of: JOB,
    ...NOTHING,
  },
  'job failed': {
    name: 'a job that failed',
    given: () => anEndedJob({outcome: 'failed', cause: 'exit', error: 'it broke'}),
    of: JOB,
    ...{kind: 'failed', about: `job ${JOB}`, evidence: /it broke/},
  },
  'job cancelled': {
    name: 'no wait of a cancelled job',
    given: () => aWorldAfter(aWaitingJob(true), 1, {action: 'cancel', job: JOB}),
    of: JOB,
    ...NOTHING,
  },
  'tpu STARTING': {
    name: 'a TPU that is created for a job',
    given: () => aWaitingJob(true),
    of: A0,
    ...{kind: 'coming', about: A0, evidence: /is being created/},
  },
  'tpu READY': {
    name: 'a TPU that is about to ask',
    given: async () => {
      const world = new World(ONE_SLOT);
      world.onAgent = agent => {
        agent.ask = async () => ({status: 503, body: {}});
      };
      world.drop('my-run', 0, LINES);
      await world.minutes(3, 1);
      return world;
    },
    of: A0,
    ...{kind: 'idle', about: A0},
  },
  'tpu WORKING': {name: 'no wait of a TPU at work', given: aWorkingWorld, of: A0, ...NOTHING},
  'tpu DRAINING': {
    name: 'a TPU that a smaller pool does not need',
    given: () => aWorldAfter(aWorkingWorld(), 1, {action: 'scale', workers_per_zone: 0}),
    of: A0,
    ...{kind: 'away', about: A0, evidence: /leaves its slot/},
  },
  'tpu PREEMPTED': {
    name: 'a TPU that was taken',
    given: () => aTakenWorker(1),
    of: A0,
    ...{kind: 'away', about: A0, evidence: /preempted/},
  },
  'tpu MISSING': {
    name: 'a TPU that said nothing for too long',
    given: () => aSilentWorker(),
    of: A0,
    ...{kind: 'away', about: A0, evidence: /said nothing/},
  },
  'tpu DELETING': {
    name: 'a TPU that a person deletes',
    given: () =>
      aWorldAfter(aWorldWithAShard(), 0, async world => {
        world.control({action: 'delete', worker: A0});
        await world.deliverNext('control');
      }),
    of: A0,
    ...{kind: 'deleted', about: A0},
  },
  'tpu GONE': {name: 'no wait of a TPU that no work needs', given: aCompletedRun, of: A0, ...NOTHING},
  'tpu HELD': {
    name: 'a slot that a person emptied',
    given: () => aWorldAfter(aWorldWithAShard(), 4, {action: 'delete', worker: A0}),
    of: A0,
    ...{kind: 'deleted', about: A0, next_step: /tpus recreate/},
  },
};
