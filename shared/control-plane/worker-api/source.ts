import {none, ok, type RequestDecision} from '../../domain/worker/requests.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import {readPool} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';

/** Answers the newest source and environment of the worker's pool. Reads the pool itself: a cache may be older than the heartbeat. */
export async function answerSource(deps: Deps, {pool: name}: Worker): Promise<RequestDecision> {
  const pool = await readPool(deps, name);
  if (!pool) return {answer: none(`there is no pool "${name}"`)};
  const {source_version: version, source, environment} = pool;
  return {answer: ok({action: 'source', version, source, environment, bucket: deps.objects.bucket})};
}
