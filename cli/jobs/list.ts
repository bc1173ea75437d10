import type {Filter, Stored} from '../../shared/ports.ts';
import {type Cloud, withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {print} from '../terminal/output.ts';
import {jobLine} from './job-view.ts';

type Options = CloudOptions & {status?: string; pool?: string; limit: number};

export async function list(options: Options): Promise<void> {
  await withCloud(options, async cloud => {
    const found = await newest(cloud, options);
    const isAll = options.status === undefined && options.pool === undefined;
    const none = isAll ? 'no jobs yet: `gleaner jobs submit FILE` submits one' : 'no such job';
    const lines = found.map(({id, data}) => jobLine(id, data));
    const jobs = found.map(({id, data}) => ({...data, id}));
    print<'jobs list'>(options.json, jobs, lines.length > 0 ? lines : [none]);
  });
}

const PAGE = 300;
/** Jobs that a list looks at, at most. */
const MOST_READ = 30_000;

/**
 * The newest jobs that match, read page by page: a filter on a second field would need an index of its own. A job without
 * `created_at` has not been taken up yet and is not listed.
 */
async function newest({store, jobs}: Cloud, {status, pool, limit}: Options): Promise<Stored[]> {
  const isMeant = ({data}: Stored) =>
    (status === undefined || data.status === status) && (pool === undefined || data.pool === pool);
  const seen = new Set<string>();
  const found: Stored[] = [];
  let where: Filter[] = [];
  for (;;) {
    const page = await store.query(jobs, {
      where,
      order_by: {field: 'created_at', direction: 'desc'},
      limit: PAGE,
    });
    const fresh = page.filter(({id}) => !seen.has(id));
    for (const stored of fresh) seen.add(stored.id);
    found.push(...fresh.filter(isMeant));
    const last = page.at(-1)?.data.created_at;
    if (
      found.length >= limit ||
      page.length < PAGE ||
      fresh.length === 0 ||
      last === undefined ||
      seen.size > MOST_READ
    )
      return found.slice(0, limit);
    where = [{field: 'created_at', op: '<=', value: last}];
  }
}
