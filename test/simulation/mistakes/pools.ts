/** Mistakes of a deployment with several pools. */
import type {Mistake} from './mistake.ts';

export const POOLS: Mistake[] = [
  {
    name: 'a bill of a second pool that the pool of the deployment pays',
    class: 'overspend',
    edits: [
      {
        file: 'shared/control-plane/workers/decide-slots.ts',
        find: 'readShared(deps, tx, plan.pool.pool, turns',
        replace: 'readShared(deps, tx, deps.config.pool.pool, turns',
      },
    ],
  },
  {
    name: 'a stream that is leased to a worker of another pool',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/worker-api/grant-stream.ts',
        find: 'isRunnable(run) && run.pool === worker.pool',
        replace: 'isRunnable(run)',
      },
    ],
  },
  {
    name: 'a job that is leased to a worker of another pool',
    class: 'double',
    edits: [
      {
        file: 'shared/control-plane/worker-api/grant-job.ts',
        find: 'const query = {where: queueOf(pool), order_by',
        replace: 'const query = {where: queueOf(deps.config.pool.pool || pool), order_by',
      },
      {
        file: 'shared/control-plane/worker-api/grant-job.ts',
        find: ' || job.pool !== worker.pool) {',
        replace: ') {',
      },
    ],
  },
  {
    name: 'a waiting job of a second pool that no plan counts',
    class: 'stick',
    edits: [
      {
        file: 'shared/domain/tick/pools.ts',
        find: 'hasDocument ? jobs.get(pool.pool) : 0;',
        replace: 'hasDocument && pool === pools[0] ? jobs.get(pool.pool) : 0;',
      },
    ],
  },
];
