import {z} from 'zod';
import {jobFields, jobId} from '../../../contracts/job-schemas.ts';
import type {Decision} from '../../../domain/commands.ts';
import {decideCancelJob, decideRetryJob, noJob} from '../../../domain/job/commands.ts';
import {CAUSES, type Job} from '../../../domain/job/job.ts';
import {isFinal} from '../../../domain/job/lifecycle.ts';
import {paths} from '../../../domain/names.ts';
import type {Document, Filter, Transaction} from '../../../ports.ts';
import {submitJob} from '../../jobs/schedule-jobs.ts';
import type {Deps} from '../../state/deps.ts';
import {deleteJob, jobRecords, storeEnded, workerOf} from '../../state/job-documents.ts';
import {clearWork} from '../../state/lease-documents.ts';
import {command, type Moment, type Outcome} from './command.ts';

/** Jobs that one message changes. A repeated message changes more. */
const MOST_AT_ONCE = 200;
const MOST_NAMED = 20;

/** Submits a job under an id that the sender chose. */
export const submit = command({
  schema: z.strictObject({action: z.literal('submit'), job: jobId, ...jobFields}),
  decide: async (deps, tx, {action: _, job, ...fields}) => {
    const path = paths.job(deps.config.jobs_collection, job);
    if (await tx.get(path))
      return {outcome: 'rejected', reason: `there is a job "${job}" already: choose another id`, about: {}};
    const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
    const document = {...given, status: 'pending'} as Document;
    const why = await submitJob(deps, tx, job, document);
    if (why !== undefined) return {outcome: 'rejected', reason: why, about: {}};
    return {outcome: 'applied', reason: `job ${job} is submitted`, about: {}};
  },
});

/** Schema of `retry` and `cancel` for jobs: one job, or those that failed for a cause. */
export const whichJobs = {
  job: jobId.optional(),
  where: z.strictObject({cause: z.enum(CAUSES)}).optional(),
};

/** Ends a job. Its worker hears so at its next heartbeat. */
export async function cancelJob(deps: Deps, tx: Transaction, id: string, moment: Moment): Promise<Outcome> {
  return concludeJobs(deps, tx, [id], moment, (job, price) =>
    decideCancelJob(job, price, moment.said_at, moment.now),
  );
}

/** Runs one ended job again, or up to 200 jobs that failed for a cause. */
export async function retryJobs(
  deps: Deps,
  tx: Transaction,
  {job, where}: {job?: string | undefined; where?: {cause: string} | undefined},
  moment: Moment,
): Promise<Outcome> {
  const ids = job === undefined ? await failedFor(deps, where?.cause ?? '') : [job];
  if (ids.length === 0)
    return {outcome: 'rejected', reason: `no job has failed for the cause "${where?.cause}"`, about: {}};
  return concludeJobs(deps, tx, ids, moment, found => decideRetryJob(found, moment.said_at, moment.now));
}

/** Queries before the transaction reads: a transaction reads documents one by one. */
async function failedFor({config, store}: Deps, cause: string): Promise<string[]> {
  const where: Filter[] = [
    {field: 'cause', op: '==', value: cause},
    {field: 'status', op: '==', value: 'failed'},
  ];
  const found = await store.query(config.jobs_collection, {where, limit: MOST_AT_ONCE});
  return found.map(({id}) => id);
}

async function concludeJobs(
  deps: Deps,
  tx: Transaction,
  ids: readonly string[],
  {now}: Moment,
  decide: (job: Job, usd_per_hour: number | null) => Decision<Job>,
): Promise<Outcome> {
  const found = await Promise.all(ids.map(id => jobRecords.get(deps, tx, id)));
  const holders = await Promise.all(found.map(job => job && workerOf(deps, tx, job)));
  const decisions = found.map((job, index) =>
    job ? decide(job, holders[index]?.usd_per_hour ?? null) : noJob(ids[index] ?? ''),
  );
  for (const [index, decision] of decisions.entries()) {
    const job = found[index];
    if (decision.kind !== 'applied' || !job) continue;
    storeEnded(deps, tx, job, decision.next, now);
    if (decision.next.lease === null) clearWork(tx, holders[index]);
  }
  const reasons = decisions.map(decision => (decision.kind === 'applied' ? decision.what : decision.reason));
  const named = reasons.slice(0, MOST_NAMED);
  if (reasons.length > MOST_NAMED) named.push(`and ${reasons.length - MOST_NAMED} more`);
  if (ids.length === MOST_AT_ONCE) named.push('there may be more: send it again for them');
  const isApplied = decisions.some(({kind}) => kind === 'applied');
  return {outcome: isApplied ? 'applied' : 'rejected', reason: named.join('; '), about: {}};
}

/** Deletes the documents of ended jobs, the oldest ids first. Their folders in the bucket stay. */
export const clear = command({
  schema: z.strictObject({action: z.literal('clear'), before_at: z.iso.datetime().optional()}),
  decide: async (deps, tx, {before_at}) => {
    const {config, store} = deps;
    const where: Filter[] = [{field: 'status', op: 'in', value: ['completed', 'failed', 'cancelled']}];
    const found = await store.query(config.jobs_collection, {where, limit: MOST_AT_ONCE + 1});
    const jobs = await Promise.all(found.slice(0, MOST_AT_ONCE).map(({id}) => jobRecords.get(deps, tx, id)));
    const isOld = ({completed_at}: Job) => before_at === undefined || (completed_at ?? '') < before_at;
    const ended = jobs.filter(job => job !== undefined).filter(job => isFinal(job) && isOld(job));
    for (const job of ended) deleteJob(deps, tx, job);
    const more = found.length > MOST_AT_ONCE ? '; there are more: send it again for them' : '';
    const reason = ended.length > 0 ? `${ended.length} ended jobs are deleted${more}` : 'no job has ended';
    return {outcome: ended.length > 0 ? 'applied' : 'rejected', reason, about: {}};
  },
});
