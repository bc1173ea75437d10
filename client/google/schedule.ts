/** The job of Cloud Scheduler that asks for a tick every minute. */
import {ServiceError} from '../../shared/contracts/errors.ts';
import {tickJobOf} from '../../shared/domain/deployment.ts';
import {clientOptionsFor} from '../../shared/google/endpoint.ts';
import {isNotFound, isPermission, withAdvice} from '../../shared/google/errors.ts';
import {memoizeAsync} from '../../shared/google/memoize-async.ts';
import type {GoogleApi} from './api.ts';

const METHODS = {read: 'getJob', run: 'runJob', pause: 'pauseJob', resume: 'resumeJob'} as const;
/** The client would repeat a read for ten minutes. */
const CALL = {timeout: 20_000, retry: null};

/** `state`: as Cloud Scheduler names it: ENABLED, PAUSED, DISABLED or UPDATE_FAILED. `last_code`: of the last attempt; 0 is a success. */
type TickJob = {state: string; last_code: number};

/** Every verb is safe to repeat, and `run` publishes also while the job is paused. `job`: its name at Google. */
export type Schedule = Record<keyof typeof METHODS, () => Promise<TickJob>> & {job: string};

/** Loads Google's client with the first call. */
export function openSchedule(
  {endpoint, token}: Pick<GoogleApi, 'endpoint' | 'token'>,
  {project, location, deployment}: {project: string; location: string; deployment: string},
): Schedule {
  const job = `projects/${project}/locations/${location}/jobs/${tickJobOf(deployment)}`;
  const open = memoizeAsync(async () => {
    const {CloudSchedulerClient} = (await import('@google-cloud/scheduler')).default;
    // Without a project the client asks gcloud for one, which takes a second.
    const options = {fallback: true, projectId: project, ...clientOptionsFor(endpoint, token)};
    return new CloudSchedulerClient(options);
  });
  const call = async (verb: keyof typeof METHODS, wanted?: string): Promise<TickJob> => {
    const client = await open();
    try {
      const [{state, status}] = await client[METHODS[verb]]({name: job}, CALL);
      return {state: String(state), last_code: status?.code ?? 0};
    } catch (cause) {
      // Scheduler refuses to pause a paused job, and to resume an enabled one.
      const found = wanted && (await call('read').catch(() => undefined));
      if (found && found.state === wanted) return found;
      throw new ServiceError(`Failed to ${verb} ${job}: ${withAdvice(cause, adviceFor(cause))}`, {cause});
    }
  };
  return {
    job,
    read: () => call('read'),
    run: () => call('run'),
    pause: () => call('pause', 'PAUSED'),
    resume: () => call('resume', 'ENABLED'),
  };
}

function adviceFor(cause: unknown): string | undefined {
  if (isPermission(cause)) return 'grant this account roles/cloudscheduler.admin';
  return isNotFound(cause) ? 'name its --location, or run `gleaner deploy`, which makes the job' : undefined;
}
