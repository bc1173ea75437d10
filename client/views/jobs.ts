/** Jobs, and why each waits, as the last tick stored it in the documents of their pools. */
import {poolRecords} from '../../shared/control-plane/documents/documents.ts';
import {paths} from '../../shared/domain/names.ts';
import {waitText} from '../../shared/domain/records/constraint.ts';
import type {Document, Store} from '../../shared/ports/ports.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {findJob, type JobFilter, newestJobs} from '../cloud/find-job.ts';
import {CliError} from '../text/errors.ts';
import {outputTail} from '../text/output-parts.ts';
import {findOutput, listArtifacts} from './attempt-files.ts';

/** The sentence for a waiting job; undefined for any other job, and before a tick has seen it. */
type WaitOf = (job: Document) => string | undefined;

async function readWaits(store: Store): Promise<WaitOf> {
  const pools = poolRecords.parseAll(await store.query('pools'), () => {});
  const waits = new Map(
    pools.flatMap(({pool, jobs_wait}) => (jobs_wait ? [[pool, waitText(jobs_wait)]] : [])),
  );
  return ({status, pool, reason}) => {
    if (status !== 'scheduled') return undefined;
    return waits.get(String(pool)) ?? (typeof reason === 'string' ? reason : undefined);
  };
}

/** A job as its document is: an unchecked one may lack every field. */
export type JobView = {id: string; job: Document; waits: string | undefined};

/** Reads the document of a job as it is: an unchecked document may lack every field. */
export async function readJob({store, jobs}: Cloud, id: string): Promise<Document> {
  const job = await store.get(paths.job(jobs, id));
  if (!job) throw new CliError(`There is no job "${id}": \`gleaner jobs list\` lists the newest`);
  return job;
}

export async function readJobs(cloud: Cloud, filter: JobFilter): Promise<JobView[]> {
  const found = await newestJobs(cloud, filter);
  const waitOf = await readWaits(cloud.store);
  return found.map(({id, data}) => ({id, job: data, waits: waitOf(data)}));
}

export async function readJobView(cloud: Cloud, given: string): Promise<JobView> {
  const {id, job} = await findJob(cloud, given);
  return {id, job, waits: (await readWaits(cloud.store))(job)};
}

const MOST_OUTPUT = 100;
/** Larger artifacts are for the command alone. */
export const MAX_ARTIFACT_BYTES = 64_000_000;

/** A job with the end of its output and its artifacts, each of the newest attempt. */
export type JobPage = JobView & {
  output: string[];
  artifacts: {name: string; size_bytes: number; isLarge: boolean}[];
};

/** Undefined for an unknown job. */
export async function readJobPage(cloud: Cloud, id: string): Promise<JobPage | undefined> {
  const job = await cloud.store.get(paths.job(cloud.jobs, id));
  if (!job) return undefined;
  const waits = (await readWaits(cloud.store))(job);
  const epoch = epochOf(job);
  if (epoch === 0) return {id, job, waits, output: [], artifacts: []};
  const artifacts = (await listArtifacts(cloud.objects, id, epoch)).map(({name, info: {size_bytes}}) => ({
    ...{name, size_bytes},
    isLarge: size_bytes > MAX_ARTIFACT_BYTES,
  }));
  const folder = await findOutput(cloud.objects, id, epoch);
  const output = folder === undefined ? [] : await outputTail(cloud.objects, folder, MOST_OUTPUT);
  return {id, job, waits, output, artifacts};
}

/** Number of the newest attempt; 0 without one, and for a value that is no number. */
export function epochOf({epoch}: Document): number {
  return typeof epoch === 'number' && Number.isInteger(epoch) ? epoch : 0;
}
