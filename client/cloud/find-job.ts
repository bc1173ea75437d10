/** The job that a person names. */
import {JOB, paths} from '../../shared/domain/names.ts';
import type {Document, Value} from '../../shared/ports/ports.ts';
import {CliError} from '../text/errors.ts';
import type {Cloud} from './cloud.ts';
import {newestFirst} from './newest-first.ts';

export type FoundJob = {id: string; job: Document};

/** Of several jobs with one name, an error lists so many. */
const MOST_LISTED = 5;

/** The job with this id, or else the only one with this name. Its document is as it is: an unchecked one may lack every field. */
export async function findJob(cloud: Cloud, given: string): Promise<FoundJob> {
  const job = JOB.test(given) ? await cloud.store.get(paths.job(cloud.jobs, given)) : undefined;
  if (job) return {id: given, job};
  const [first, ...others] = await jobsNamed(cloud, given);
  if (!first) throw new CliError(`There is no job "${given}": \`gleaner jobs list\` lists the newest`);
  if (others.length === 0) return first;
  const all = [first, ...others].map(({id, job}) => `${id} (${job.status})`).join(', ');
  const more = others.length + 1 < MOST_LISTED ? '' : ', …';
  throw new CliError(`Several jobs have the name "${given}": give one of the ids ${all}${more}`);
}

/** The newest jobs that were submitted with this `--name`. */
export async function jobsNamed({store, jobs}: Cloud, name: string): Promise<FoundJob[]> {
  const found: FoundJob[] = [];
  for await (const page of newestFirst(store, jobs, 'created_at')) {
    const named = page.filter(({data}) => nameIn(data) === name);
    found.push(...named.map(({id, data}) => ({id, job: data})));
    if (found.length >= MOST_LISTED) break;
  }
  return found.slice(0, MOST_LISTED);
}

export function nameIn({metadata}: Document): Value | undefined {
  return (metadata as Document | null | undefined)?.name;
}
