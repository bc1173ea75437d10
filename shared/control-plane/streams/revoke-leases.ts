/** Leases that a tick revokes: expired leases, leases of ended runs, leases without a worker, and those of workers that a job needs. */

import {isWaiting} from '../../domain/job/queue.ts';
import {parseJobWork, parseWork, paths} from '../../domain/names.ts';
import {isOpen} from '../../domain/records/run.ts';
import {notIdle, type Workers} from '../../domain/records/worker.ts';
import {
  freeFromLiving,
  hasRunOut,
  idleLeasesAfter,
  isHeldBy,
  revokeLease,
  suspectOf,
  suspectUntilHeard,
} from '../../domain/stream/lease.ts';
import type {Yield} from '../../domain/tick/yields.ts';
import type {Served} from '../../domain/worker/served-time.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Deps} from '../deps.ts';
import {
  LEASED,
  leftAlone,
  runRecords,
  skipIfInvalid,
  streamRecords,
  workerRecords,
} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {jobRecords} from '../documents/job-documents.ts';
import {
  clearWork,
  freeStream,
  holderOf,
  returnStream,
  runOfFailed,
  workOf,
} from '../documents/lease-documents.ts';
import {pagesOf} from '../documents/pages.ts';
import {advanceStream} from './advance-checkpoint.ts';

/**
 * Revokes the leases of living workers that have not renewed them for `lease_s`, for example during a repair or after a restart. Dead workers
 * lost their leases earlier, with their death as the reason.
 */
export async function revokeExpired(deps: Deps, names: readonly string[], served: Served): Promise<void> {
  await forEachConcurrently(names, async name => {
    const freed = await deps.store.transaction(async tx => {
      const {lease_s} = deps.config;
      const worker = await workerRecords.get(tx, name);
      const isOfJob = parseJobWork(worker?.work ?? null) !== undefined;
      if (!worker || isOfJob || !hasRunOut(worker, lease_s, served)) return undefined;
      const stream = await workOf(deps.log, tx, worker);
      if (!stream) {
        clearWork(tx, worker);
        return undefined;
      }
      const now = deps.now();
      const suspect = suspectOf(worker, stream, lease_s, served);
      const free = suspect ? revokeLease(stream, now) : freeFromLiving(stream, worker, now);
      const parent = await runOfFailed(deps.log, tx, free);
      const idle_leases = idleLeasesAfter(worker, stream);
      returnStream(deps.log, tx, free, {...worker, suspect, idle_leases}, now, parent);
      const text = `The lease of ${worker.work} ran out: ${name} has not renewed it for ${lease_s} s`;
      const {run, epoch} = stream;
      recordEvent(tx, {kind: 'stream', run, stream: stream.stream, epoch, text}, now);
      return stream;
    });
    if (freed) await skipIfInvalid(deps.log, () => advanceStream(deps, freed.run, freed.stream));
  });
}

/**
 * Writes the state of a run into the documents of its workers, for their next heartbeats. Workers of a paused run finish their present shard
 * and release their streams. Workers of a resumed run continue. An ended run loses its leases at once.
 */
export async function notifyWorkers(deps: Deps, run: string, names: readonly string[]): Promise<void> {
  // A run whose document is invalid keeps its workers.
  await skipIfInvalid(deps.log, () =>
    deps.store.transaction(async tx => {
      const readWorker = (name: string) => workerRecords.read(deps.log, tx, name);
      const [parent, stored] = await Promise.all([
        runRecords.get(tx, run),
        Promise.all(names.map(readWorker)),
      ]);
      const workers = stored.flatMap(worker => (worker && parseWork(worker.work)?.run === run ? worker : []));
      if (parent && isOpen(parent)) {
        const drains = parent.status === 'paused';
        for (const worker of workers)
          if (worker.drains !== drains) workerRecords.set(tx, {...worker, drains});
        return;
      }
      const streams = await Promise.all(workers.map(worker => workOf(deps.log, tx, worker)));
      const now = deps.now();
      for (const [index, worker] of workers.entries()) {
        const stream = streams[index];
        if (!stream) {
          clearWork(tx, worker);
          continue;
        }
        // A silent worker of an ended run is deleted after the time for a drain: its document keeps the run until its next heartbeat.
        const suspect = suspectUntilHeard(worker, stream);
        returnStream(deps.log, tx, revokeLease(stream, now), {...notIdle(worker), suspect}, now);
      }
    }),
  );
}

/** Revokes every lease of a run that no worker holds. A worker whose document is invalid may still hold its lease. */
export async function revokeOrphaned(
  deps: Deps,
  run: string,
  {workers, unreadable}: {workers: Workers; unreadable: ReadonlySet<string>},
): Promise<void> {
  for await (const page of pagesOf(deps.store, paths.streams(run), {where: [LEASED]})) {
    const orphans = streamRecords.parseAll(page, leftAlone(deps.log)).filter(stream => {
      const holder = stream.lease?.worker ?? '';
      return !unreadable.has(holder) && !isHeldBy(stream, workers.get(holder));
    });
    await forEachConcurrently(orphans, async ({stream}) => {
      await deps.store.transaction(async tx => {
        const current = await streamRecords.get(tx, run, stream);
        if (!current?.lease || (await holderOf(deps.log, tx, current))) return;
        const now = deps.now();
        freeStream(tx, current, undefined, now);
        const text = `The lease of ${run}/${stream} is revoked: ${current.lease.worker} does not hold it any more`;
        recordEvent(tx, {kind: 'stream', run, stream, text}, now);
      });
      await advanceStream(deps, run, stream);
    });
  }
}

/** Marks the worker to give its stream back for a job, unless the worker or the job has changed since. */
export async function yieldToJob(deps: Deps, {worker: name, work, job: id}: Yield): Promise<void> {
  await deps.store.transaction(async tx => {
    const worker = await workerRecords.get(tx, name);
    if (worker?.work !== work || worker.yields_to === id) return;
    const job = id === null ? undefined : await skipIfInvalid(deps.log, () => jobRecords.get(deps, tx, id));
    if (id !== null && !(job && isWaiting(job))) return;
    workerRecords.set(tx, {...worker, yields_to: id});
    const stream = parseWork(work);
    if (id === null || !stream) return;
    const text = `${name} gives ${work} back after the shard in hand: job ${id} waits for a worker`;
    recordEvent(tx, {kind: 'stream', ...stream, worker: name, text}, deps.now());
  });
}
