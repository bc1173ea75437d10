import {z} from 'zod';
import {Rejected} from '../../../contracts/errors.ts';
import {environment, sourceChange} from '../../../contracts/job-schemas.ts';
import {poolName} from '../../../contracts/schemas.ts';
import {decideUpdate} from '../../../domain/source/source-change.ts';
import {poolRecords} from '../../documents/documents.ts';
import {spreadSource} from '../../worker-api/source.ts';
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
