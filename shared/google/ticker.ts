import type {CloudSchedulerClient} from '@google-cloud/scheduler';
import type {Ticker} from '../ports.ts';
import {clientOptionsFor} from './endpoint.ts';
import {isPreconditionFailed, reasonOf} from './errors.ts';
import {lazily} from './memoize-async.ts';

const CALL = {timeout: 10_000, maxRetries: 0};

type Options = {job: string; endpoint?: string | undefined; token?: string | undefined};

/**
 * The Cloud Scheduler job `projects/P/locations/L/jobs/J`, resumed and paused; `endpoint` is where Scheduler is instead of
 * Google's own address, and `token` is what it asks for there.
 */
export function openTicker({job, endpoint, token}: Options): Ticker {
  const open = lazily(async () => {
    const {CloudSchedulerClient} = await import('@google-cloud/scheduler');
    return new CloudSchedulerClient(clientOptionsFor(endpoint, token));
  });
  return {
    on: async () => turn(await open(), job, 'ENABLED'),
    off: async () => turn(await open(), job, 'PAUSED'),
  };
}

async function turn(client: CloudSchedulerClient, job: string, wanted: 'ENABLED' | 'PAUSED'): Promise<void> {
  const verb = wanted === 'ENABLED' ? 'resume' : 'pause';
  try {
    await client[`${verb}Job`]({name: job}, CALL);
  } catch (cause) {
    // Scheduler refuses to pause what is paused, and to resume what runs.
    if (isPreconditionFailed(cause) && (await stateOf(client, job)) === wanted) return;
    throw new Error(`Failed to ${verb} ${job}: ${reasonOf(cause)}`, {cause});
  }
}

async function stateOf(client: CloudSchedulerClient, job: string): Promise<string | undefined> {
  const {protos} = await import('@google-cloud/scheduler');
  const [{state}] = await client.getJob({name: job}, CALL);
  return typeof state === 'number' ? protos.google.cloud.scheduler.v1.Job.State[state] : (state ?? undefined);
}
