import {z} from 'zod';
import {Rejected} from '../../../contracts/errors.ts';
import {environment, sourceChange} from '../../../contracts/job-schemas.ts';
import {poolName} from '../../../contracts/schemas.ts';
import {withSourceVersion} from '../../../domain/source/source.ts';
import {decideUpdate} from '../../../domain/source/source-change.ts';
import {readPool} from '../../caches/pool-cache.ts';
import {batchesOf, forEachConcurrently} from '../../concurrency.ts';
import type {Deps} from '../../deps.ts';
import {LIVING, poolRecords, skipIfInvalid, workerRecords} from '../../documents/documents.ts';
import {command, conclude} from './command.ts';

/** Changes the source or the environment of a pool. A message without either makes every host fetch the source again. */
export const update = command({
  schema: z.strictObject({
    action: z.literal('update'),
    pool: poolName.optional(),
    source: sourceChange.nullable().optional(),
    environment: environment.partial().optional(),
  }),
  decide: async ({config}, tx, {pool: name = config.pool.pool, source, environment}, {published_at}) => {
    const pool = await poolRecords.find(tx, name, config.pool);
    if (!pool) throw new Rejected(`there is no pool "${name}"`);
    const decision = decideUpdate(pool, {source, environment}, config.has_internet, published_at);
    return conclude(decision, next => poolRecords.set(tx, next), {pool: name});
  },
  after: (deps, {pool = deps.config.pool.pool}) => spreadSource(deps, pool),
});

/** Workers that one transaction informs. */
const MOST_TOLD = 50;

/** Writes the version of the pool's source into the documents of its workers. The tick does so for workers that this misses. */
async function spreadSource(deps: Deps, name: string): Promise<void> {
  const {store, log} = deps;
  const pool = await readPool(deps, name);
  if (!pool) return;
  const stored = await store.query('workers', {where: [LIVING, {field: 'pool', op: '==', value: name}]});
  const outdated = workerRecords
    .parseAll(stored, error => log('ERROR', error.message))
    .filter(worker => withSourceVersion(worker, pool) !== worker);
  await forEachConcurrently(batchesOf(outdated, MOST_TOLD), batch =>
    store.transaction(async tx => {
      const workers = await Promise.all(
        batch.map(({name}) => skipIfInvalid(log, () => workerRecords.get(tx, name))),
      );
      for (const worker of workers) {
        const next = worker && withSourceVersion(worker, pool);
        if (next && next !== worker) workerRecords.set(tx, next);
      }
    }),
  );
}
