import type {CloudSchedulerClient} from '@google-cloud/scheduler';
import {ServiceError} from '../../shared/contracts/errors.ts';
import {clientOptionsFor} from '../../shared/google/endpoint.ts';
import {isNotFound, isPermission, isPreconditionFailed, withAdvice} from '../../shared/google/errors.ts';
import {memoizeAsync} from '../../shared/google/memoize-async.ts';

/** Scheduler job that publishes to topic `tick` every minute. Every verb is safe to repeat. */
export interface Schedule {
  /** State as Cloud Scheduler names it: ENABLED, PAUSED, DISABLED or UPDATE_FAILED. */
  state(): Promise<string>;
  /** Publishes one message now, also while the job is paused. */
  runNow(): Promise<void>;
  pause(): Promise<void>;
  resume(): Promise<void>;
  close(): Promise<void>;
}

const CALL = {timeout: 10_000, maxRetries: 0};

type Options = {
  job: string;
  endpoint?: string | undefined;
  token?: string | undefined;
  /** Client that replaces the client of these options. */
  client?: CloudSchedulerClient | undefined;
};

/**
 * The Cloud Scheduler job `projects/P/locations/L/jobs/J`. `endpoint` replaces Google's address, and `token` is what that server asks
 * for.
 */
export function openSchedule({job, endpoint, token, client: given}: Options): Schedule {
  const open = memoizeAsync(async () => {
    const {CloudSchedulerClient} = (await import('@google-cloud/scheduler')).default;
    return given ?? new CloudSchedulerClient(clientOptionsFor(endpoint, token));
  });
  return {
    state: async () => stateOf(await open(), job),
    runNow: async () => {
      const client = await open();
      await client.runJob({name: job}, CALL).catch(cause => {
        throw new ServiceError(`Failed to run ${job}: ${said(cause)}`, {cause});
      });
    },
    pause: async () => turn(await open(), job, 'PAUSED'),
    resume: async () => turn(await open(), job, 'ENABLED'),
    close: async () => (await open()).close(),
  };
}

function said(cause: unknown): string {
  if (isNotFound(cause))
    return withAdvice(cause, 'name its --location, or apply the Terraform, which makes the job');
  return withAdvice(cause, isPermission(cause) ? 'grant this account roles/cloudscheduler.admin' : undefined);
}

async function turn(client: CloudSchedulerClient, job: string, wanted: 'ENABLED' | 'PAUSED'): Promise<void> {
  const verb = wanted === 'ENABLED' ? 'resume' : 'pause';
  try {
    await client[`${verb}Job`]({name: job}, CALL);
  } catch (cause) {
    // Scheduler refuses to pause a paused job, and to resume an enabled one.
    if (isPreconditionFailed(cause) && (await stateOf(client, job)) === wanted) return;
    throw new ServiceError(`Failed to ${verb} ${job}: ${said(cause)}`, {cause});
  }
}

async function stateOf(client: CloudSchedulerClient, job: string): Promise<string> {
  const {protos} = (await import('@google-cloud/scheduler')).default;
  const [{state}] = await client.getJob({name: job}, CALL).catch(cause => {
    throw new ServiceError(`Failed to read ${job}: ${said(cause)}`, {cause});
  });
  const name = typeof state === 'number' ? protos.google.cloud.scheduler.v1.Job.State[state] : state;
  return name ?? 'STATE_UNSPECIFIED';
}
