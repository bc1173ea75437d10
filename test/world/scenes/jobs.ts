/** Documents of jobs, and worlds in which a worker has one. */
import assert from 'node:assert/strict';
import {jobRecords} from '../../../shared/control-plane/documents/job-documents.ts';
import type {Job} from '../../../shared/domain/records/job.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {at} from '../builders.ts';
import {World} from '../world.ts';
import {A0, ONE_SLOT} from './places.ts';

/** A job that waits for its first worker. */
export function aJob(changes: Partial<Job> = {}): Job {
  const job: Job = {
    ...{job: 'my-job', challenge_number: null, code: 'result = 1', command: null, timeout: 300, pool: 'tpu'},
    ...{args: null, slices: 1, ends: {}, reservation_timeouts: {}, priority: 0, max_retries: 0, source: null},
    ...{environment: null, env: null, secrets: null, limits: null, inputs: [], metadata: {}},
    ...{deadline_at: null, budget_usd: null, status: 'scheduled', queue: `tpu/1000/${at(0)}/my-job`},
    epoch: 0,
    ...{lease: null, due_at: null, failures: 0, machine_failures: 0, result: null, result_path: null},
    ...{error: null, cause: null, reason: null, exit_code: null, attempts: [], ran: null, log_path: null},
    ...{artifacts_path: null, spent_usd: 0, long_epoch: null, message_times: {}, created_at: at(0)},
    scheduled_at: at(0),
    ...{started_at: null, completed_at: null, updated_at: at(0), expire_at: null},
    ...{checkpoint: null, checkpoint_state: null, cancelled_at: null},
  };
  return {...job, ...changes};
}

/** The holder of a running job. */
export const HOLDER = {worker: A0, incarnation: 2};

/** A job in its third attempt, which began at the beginning. */
export function aRunningJob(changes: Partial<Job> = {}): Job {
  const lease = {...HOLDER, epoch: 3, host_count: 1, members: []};
  return aJob({
    ...{status: 'running', queue: null, epoch: 3, lease, started_at: at(0), due_at: at(420)},
    ...changes,
  });
}

export async function jobIn(world: World, id = 'my-job'): Promise<Job> {
  return (await jobRecords.get(world.deps, world.store, id)) ?? assert.fail(`There is no job ${id}`);
}

/** The document as it is stored. */
export async function storedJob(world: World, id = 'my-job'): Promise<Document> {
  return (await world.store.get(`jobs/${id}`)) ?? assert.fail(`There is no job ${id}`);
}

export async function deleteJob(world: World, id = 'my-job'): Promise<void> {
  await world.store.transaction(async tx => tx.delete(`jobs/${id}`));
}

/** A world whose agents keep their jobs until a test ends them. */
export function aWorldOfJobs(set: Record<string, string> = ONE_SLOT): World {
  const world = new World(set);
  world.onAgent = agent => {
    agent.jobEnd = null;
  };
  return world;
}

/** A world in which A0 runs `my-job`. */
export async function aWorldAtWork(
  document: Document = {code: 'result = 1', status: 'pending'},
  set: Record<string, string> = ONE_SLOT,
): Promise<World> {
  const world = aWorldOfJobs(set);
  await world.writeJob('my-job', document);
  await world.until(
    'a job at work',
    async () => (await jobIn(world).catch(() => null))?.status === 'running',
    9,
    1,
  );
  return world;
}
