/** A second pool beside the deployment's own, with another accelerator. */
import assert from 'node:assert/strict';
import {jobRecords} from '../../../shared/control-plane/documents/job-documents.ts';
import {scheduleJob} from '../../../shared/domain/job/lifecycle.ts';
import {paths} from '../../../shared/domain/names.ts';
import {send} from '../people.ts';
import {World} from '../world.ts';
import {aJob} from './jobs.ts';
import {ZONE} from './places.ts';

export const FAST = {
  ...{action: 'pool', pool: 'fast', accelerator: 'v6e-1', runtime_version: 'v2-alpha-tpuv6e'},
  ...{zones: [ZONE], workers_per_zone: 2},
};
export const F0 = `fast-${ZONE}-0`;
export const F1 = `fast-${ZONE}-1`;

/** A world with one slot in its own pool, and two in the pool `fast`, which the run `quick` names. */
export async function aWorldWithFast(set: Record<string, string> = {}, changes: object = {}): Promise<World> {
  const world = new World({GLEANER_ZONES: ZONE, GLEANER_WORKERS_PER_ZONE: '1', ...set});
  const {outcome, reason} = await send(world, {...FAST, ...changes});
  assert.equal(outcome, 'applied', reason);
  namePool(world, 'quick', 'fast');
  return world;
}

/** Names the pool of a run, before its first stream. */
export function namePool(world: World, run: string, pool: string, more: object = {}): void {
  world.objects.put(`datasets/${run}/run.json`, JSON.stringify({pool, ...more}));
}

/** Waiting jobs of a pool, as their documents have them. */
export function queueJobs(world: World, pool: string, ...jobs: string[]): Promise<void> {
  return world.store.transaction(async tx => {
    for (const job of jobs) jobRecords.set(world.deps, tx, scheduleJob(aJob({job, pool}), world.now));
  });
}

export function endJobs(world: World, ...jobs: string[]): Promise<void> {
  return world.store.transaction(async tx => {
    for (const job of jobs) tx.delete(paths.job('jobs', job));
  });
}
