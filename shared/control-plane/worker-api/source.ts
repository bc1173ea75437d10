/** Version of the code that each worker of a pool shall have: its heartbeats name the version, and its hosts ask for the source. */
import {withSourceVersion} from '../../domain/source/source.ts';
import {readPool} from '../caches/pool-cache.ts';
import {batchesOf, forEachConcurrently} from '../concurrency.ts';
import type {Deps} from '../deps.ts';
import {LIVING, skipIfInvalid, workerRecords} from '../documents/documents.ts';
import {
  type Asked,
  contradicts,
  impostor,
  isAhead,
  isCurrent,
  notWanted,
  ok,
  speaksFor,
  unknown,
  type WorkerAnswer,
} from './answers.ts';

/** Answers the newest source and environment of the worker's pool. Reads the pool itself: a cache may be older than the heartbeat. */
export async function answerSource(deps: Deps, request: Asked<'source'>): Promise<WorkerAnswer> {
  const worker = await skipIfInvalid(deps.log, () => workerRecords.get(deps.store, request.worker));
  if (contradicts(worker, request)) return impostor(deps, 'read a source', request);
  if (!worker || isAhead(request, worker)) return ok({action: 'none', reason: unknown(request)});
  if (!isCurrent(worker, request)) return ok({action: 'none', reason: notWanted(request)});
  if (!speaksFor(worker, request)) return impostor(deps, 'read a source', request);
  const pool = await readPool(deps, worker.pool);
  if (!pool) return ok({action: 'none', reason: `there is no pool "${worker.pool}"`});
  const {source_version: version, source, environment} = pool;
  return ok({action: 'source', version, source, environment, bucket: deps.objects.bucket});
}

/** Workers that one transaction informs. */
const MOST_TOLD = 50;

/** Writes the version of the pool's source into the documents of its workers. The tick does so for workers that this misses. */
export async function spreadSource(deps: Deps, name: string): Promise<void> {
  const {store, log} = deps;
  const pool = await readPool(deps, name);
  if (!pool) return;
  const stored = await store.query('workers', {where: [LIVING, {field: 'pool', op: '==', value: name}]});
  const late = workerRecords
    .parseAll(stored, error => log('ERROR', error.message))
    .filter(worker => withSourceVersion(worker, pool) !== worker);
  await forEachConcurrently(batchesOf(late, MOST_TOLD), batch =>
    store.transaction(async tx => {
      const found = await Promise.all(
        batch.map(worker => skipIfInvalid(log, () => workerRecords.get(tx, worker.name))),
      );
      for (const worker of found) {
        const next = worker && withSourceVersion(worker, pool);
        if (next && next !== worker) workerRecords.set(tx, next);
      }
    }),
  );
}
