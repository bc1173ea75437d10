/** A world with a document of each kind: runs, jobs and a command at work, two pools, a preempted TPU, and a zone without capacity. */
import type {Stored} from '../../../shared/ports/ports.ts';
import {someLines} from '../shard-plan.ts';
import {World} from '../world.ts';
import {A0, ZONE} from './places.ts';
import {FAST, namePool} from './second-pool.ts';
import {wholeStore} from './whole-store.ts';

const LINES = 30;
const JOB = {code: 'result = 1', status: 'pending', timeout: 86_400, max_retries: 3};

/** `before`: what happens first. */
export async function aBusyWorld(
  set: Record<string, string> = {},
  before: (world: World) => Promise<void> = async () => {},
): Promise<World> {
  const world = new World({
    ...{GLEANER_ZONES: `${ZONE},us-east5-b`, GLEANER_WORKERS_PER_ZONE: '2', GLEANER_MAX_BUDGET_USD: '1000'},
    ...set,
  });
  world.onAgent = agent => {
    agent.jobEnd = null;
  };
  await before(world);
  world.objects.put('datasets/my-run/run.json', JSON.stringify({budget_usd: 50}));
  for (const index of [0, 1]) world.drop('my-run', index, someLines(LINES, `s${index}`));
  world.control({action: 'scale', budget_usd: 500});
  world.control({action: 'keep', workers: 1, minutes: 60});
  await world.order({...FAST, workers_per_zone: 1});
  await world.writeJob('my-job', {...JOB, limits: {memory_gb: 1}});
  await world.writeJob('fast-job', {...JOB, pool: 'fast'});
  await world.writeJob('cancelled-job', JOB);
  world.control({action: 'cancel', job: 'cancelled-job'});
  namePool(world, 'waiting-run', 'fast');
  world.drop('waiting-run', 0, someLines(LINES));
  await world.minutes(4, 1);
  world.exec({exec: 'e1', target: 'all', argv: ['hostname'], timeout_s: 3600});
  await world.minutes(1, 1);
  world.preempt(A0);
  world.tpus.zone(ZONE).soldOut = true;
  world.control({action: 'pause', pool: 'fast'});
  await world.minutes(3, 1);
  return world;
}

/** Each document of the world, jobs included. */
export async function everyDocument(world: World): Promise<Stored[]> {
  return [...(await wholeStore(world)), ...(await world.store.query('jobs'))];
}

/** The zone gives nodes again, and jobs and commands end, until all work is done. */
export async function finishBusyWorld(world: World): Promise<void> {
  world.tpus.zone(ZONE).soldOut = false;
  const end = (agent: {jobEnd: object | null}) => {
    agent.jobEnd = {outcome: 'completed', result: '42'};
  };
  world.onAgent = end;
  for (const agent of world.agents.values()) end(agent);
  await world.until('the end of the run', async () => (await world.run('my-run'))?.status === 'completed');
}
