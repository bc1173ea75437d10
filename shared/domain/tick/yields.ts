/** Chooses the worker that gives its stream back after its present shard, because a job has waited for `job_wait_s` and no worker is free. */
import {parseWork} from '../names.ts';
import type {Run} from '../records/run.ts';
import type {Worker} from '../records/worker.ts';
import {isOlderThan} from '../time.ts';
import type {Snapshot} from './snapshot.ts';

/** `work`: the present stream. `job`: the waiting job; null if the worker keeps its stream after all. */
export type Yield = {worker: string; work: string; job: string | null};

/**
 * Changes of the documents of workers. At most one worker of a pool at a time gives its stream back for a job of one slice. `gathered`:
 * workers whose slots a job of several slices gathers.
 */
export function planYields(
  {pool, jobs, workers, runs}: Pick<Snapshot, 'pool' | 'jobs' | 'workers' | 'runs'>,
  silent: ReadonlySet<string>,
  gathered: ReadonlyMap<string, string>,
  now: number,
): Yield[] {
  if (!jobs) return [];
  const {longest} = jobs;
  const late = longest && isOlderThan(longest.since_at, pool.job_wait_s, now) ? longest.job : null;
  const heard = [...workers.values()].filter(({name, fault}) => !silent.has(name) && fault === null);
  const atStreams = heard.flatMap(worker => {
    const work = worker.phase === 'working' ? parseWork(worker.work) : undefined;
    return work ? {worker, run: runs.find(({run}) => run === work.run)} : [];
  });
  const others = atStreams.filter(({worker}) => !gathered.has(worker.name));
  const yielding = others.find(({worker}) => worker.yields_to !== null);
  const next = heard.some(isSoonFree) ? undefined : others.toSorted(leastLossFirst)[0];
  const chosen = late === null ? undefined : (yielding ?? next)?.worker;
  return atStreams.flatMap(({worker}) => {
    const job = gathered.get(worker.name) ?? (worker === chosen ? late : null);
    return worker.yields_to === job ? [] : {worker: worker.name, work: worker.work ?? '', job};
  });
}

/** True for a worker that will ask for work soon: it boots, has no work, or drains for a paused run. */
function isSoonFree({phase, drains, recreate}: Worker): boolean {
  return !recreate && (phase === 'booting' || phase === 'idle' || (phase === 'working' && drains));
}

type AtStream = {worker: Worker; run: Run | undefined};

/** Least priority first. A stream bound to its slot would have to wait for the job, so it comes last. */
function leastLossFirst(a: AtStream, b: AtStream): number {
  return (
    Number(a.run?.affinity === 'fixed') - Number(b.run?.affinity === 'fixed') ||
    (a.run?.priority ?? 0) - (b.run?.priority ?? 0) ||
    a.worker.name.localeCompare(b.worker.name)
  );
}
