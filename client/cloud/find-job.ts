/** Jobs as a person looks for them. */
import {JOB, paths} from '../../shared/domain/names.ts';
import type {Document, Stored, Value} from '../../shared/ports/ports.ts';
import {CliError} from '../text/errors.ts';
import type {Cloud} from './cloud.ts';
import {newestFirst} from './newest-first.ts';

/** A document as it is: an unchecked one may lack every field. */
export type FoundJob = {id: string; job: Document};

/** Jobs that have each given value. */
export type JobFilter = {status?: string; pool?: string; name?: string; limit: number};

/** Of several jobs with one name, an error lists so many. */
const MOST_LISTED = 5;

/** The job with this id, or else the only one that was submitted with this `--name`. */
export async function findJob(cloud: Cloud, given: string): Promise<FoundJob> {
  const job = JOB.test(given) ? await cloud.store.get(paths.job(cloud.jobs, given)) : undefined;
  if (job) return {id: given, job};
  const named = await newestJobs(cloud, {name: given, limit: MOST_LISTED});
  const [first] = named;
  if (!first) throw new CliError(`There is no job "${given}": \`gleaner jobs list\` lists the newest`);
  if (named.length === 1) return {id: first.id, job: first.data};
  const ids = named.map(({id, data}) => `${id} (${data.status})`).join(', ');
  throw new CliError(`Several jobs have the name "${given}": give an id, such as ${ids}`);
}

/** The newest jobs that match. A job without `created_at` has not been taken up yet and is not listed. */
export async function newestJobs(cloud: Cloud, {status, pool, name, limit}: JobFilter): Promise<Stored[]> {
  const found: Stored[] = [];
  for await (const page of newestFirst(cloud.store, cloud.jobs, 'created_at')) {
    found.push(
      ...page.filter(
        ({data}) =>
          (status === undefined || data.status === status) &&
          (pool === undefined || data.pool === pool) &&
          (name === undefined || nameIn(data) === name),
      ),
    );
    if (found.length >= limit) break;
  }
  return found.slice(0, limit);
}

export function nameIn({metadata}: Document): Value | undefined {
  return (metadata as Document | null | undefined)?.name;
}
