/** Code of a run: a run keeps the worker bundle of its first lease, unless `allow_mixed_code` is set. */
import type {Snapshot} from '../tick/snapshot.ts';
import {hasEnded, type Worker} from '../worker/worker.ts';
import {isRunnable, type Run} from './run.ts';

/**
 * True if a worker of this bundle may have a stream of the run. A run without a bundle begins with the deployed bundle: no node of
 * another bundle is created. A worker without a bundle is of an earlier release, and decides about no run.
 */
export function acceptsCode(
  {bundle, allow_mixed_code}: Pick<Run, 'bundle' | 'allow_mixed_code'>,
  worker_bundle: string | null,
  deployed: string,
): boolean {
  if (allow_mixed_code || worker_bundle === (bundle ?? deployed)) return true;
  return bundle === null && worker_bundle === null;
}

/** The run after a lease to a worker of this bundle. The same object if nothing changes. */
export function withCode(run: Run, worker_bundle: string | null): Run {
  return run.bundle === null && worker_bundle !== null ? {...run, bundle: worker_bundle} : run;
}

/** Workers of the pool that may work on the run. New nodes may not, if the run keeps another bundle than the deployed one. */
export function serversOf(run: Run, workers: Iterable<Worker>, deployed: string): Worker[] {
  return [...workers].filter(
    worker => worker.pool === run.pool && !hasEnded(worker) && acceptsCode(run, worker.bundle, deployed),
  );
}

/** A run that no worker can continue, because its bundle is not deployed any more. */
export type Stuck = {run: string; bundle: string; reason: string};

export function stuckRuns(
  {runs, workers, streams, unreadable}: Pick<Snapshot, 'runs' | 'workers' | 'streams' | 'unreadable'>,
  deployed: string,
): Stuck[] {
  // A worker with an invalid document may have the bundle of the run.
  if (unreadable.size > 0) return [];
  return runs.flatMap(run => {
    const {bundle} = run;
    if (bundle === null || !isRunnable(run) || acceptsCode(run, deployed, deployed)) return [];
    const isUnfinished = (streams.get(run.run)?.unfinished ?? 0) > 0;
    if (!isUnfinished || serversOf(run, workers.values(), deployed).length > 0) return [];
    return {run: run.run, bundle, reason: stuckReason(run.run, bundle, deployed)};
  });
}

function stuckReason(run: string, bundle: string, deployed: string): string {
  const [old, present] = [bundle, deployed].map(digest => digest.slice(0, 12));
  return `its shards are of worker bundle ${old}, and bundle ${present} is deployed: deploy ${old} again, or publish {"action":"configure","run":"${run}","allow_mixed_code":true}; then {"action":"resume","run":"${run}"}`;
}

/** Idle workers whose bundle no waiting run accepts, while one accepts the deployed bundle: a new node can serve that run. */
export function outdatedWorkers(
  {runs, workers, streams, jobs}: Pick<Snapshot, 'runs' | 'workers' | 'streams' | 'jobs'>,
  deployed: string,
): string[] {
  // Jobs run on workers of any bundle.
  if (!jobs || jobs.waiting > 0) return [];
  const waiting = runs.filter(
    run => isRunnable(run) && (streams.get(run.run)?.totals.streams_pending ?? 0) > 0,
  );
  return [...workers.values()].flatMap(worker => {
    if (worker.bundle === deployed || !isIdle(worker)) return [];
    const own = waiting.filter(({pool}) => pool === worker.pool);
    const isRefused = own.every(run => !acceptsCode(run, worker.bundle, deployed));
    return isRefused && own.some(run => acceptsCode(run, deployed, deployed)) ? worker.name : [];
  });
}

export function isIdle({phase, work, recreate}: Worker): boolean {
  return phase === 'idle' && work === null && !recreate;
}
