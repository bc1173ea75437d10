import type {Stored} from '../../shared/ports.ts';
import {type Cloud, withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {newestFirst} from '../cloud/newest-first.ts';
import {table} from '../terminal/format.ts';
import {print} from '../terminal/output.ts';
import {JOB_COLUMNS, jobRow} from './job-view.ts';
import {readWaits} from './job-wait.ts';

type Options = CloudOptions & {status?: string; pool?: string; limit: number};

export async function list(options: Options): Promise<void> {
  await withCloud(options, async cloud => {
    const found = await newest(cloud, options);
    const waitOf = await readWaits(cloud.store);
    const isAll = options.status === undefined && options.pool === undefined;
    const none = isAll ? 'no jobs yet: `gleaner jobs submit FILE` submits one' : 'no such job';
    const lines = table(
      JOB_COLUMNS,
      found.map(({id, data}) => jobRow(id, data, waitOf)),
    );
    const jobs = found.map(({id, data}) => ({...data, id}));
    print<'jobs list'>(options.json, jobs, found.length > 0 ? lines : [none]);
  });
}

/** The newest jobs that match. A job without `created_at` has not been taken up yet and is not listed. */
async function newest({store, jobs}: Cloud, {status, pool, limit}: Options): Promise<Stored[]> {
  const found: Stored[] = [];
  for await (const page of newestFirst(store, jobs, 'created_at')) {
    found.push(
      ...page.filter(
        ({data}) =>
          (status === undefined || data.status === status) && (pool === undefined || data.pool === pool),
      ),
    );
    if (found.length >= limit) break;
  }
  return found.slice(0, limit);
}
