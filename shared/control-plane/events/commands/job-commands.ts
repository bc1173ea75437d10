import {z} from 'zod';
import {Rejected} from '../../../contracts/errors.ts';
import {instant, jobFields, jobId} from '../../../contracts/messages/job-schemas.ts';
import {type Decision, rejected} from '../../../domain/commands/commands.ts';
import {decideCancelJob, decideRetryJob, noJob} from '../../../domain/job/commands.ts';
import {isFinal} from '../../../domain/job/lifecycle.ts';
import {paths} from '../../../domain/names.ts';
import {CAUSES} from '../../../domain/records/causes.ts';
import type {Job} from '../../../domain/records/job.ts';
import type {Worker} from '../../../domain/records/worker.ts';
import type {Document, Filter, Stored} from '../../../ports/ports.ts';
import type {Deps} from '../../deps.ts';
import {ENDED, FAILED, workerRecords} from '../../documents/documents.ts';
import {deleteJob, jobRecords, membersOf, storeEnded} from '../../documents/job-documents.ts';
import {clearWork, holderOf} from '../../documents/lease-documents.ts';
import {orderedPages, pagesOf} from '../../documents/pages.ts';
import {scheduleNewJob, submitJob} from '../../jobs/schedule-jobs.ts';
import {type About, type CommandOutcome, command, type MessageTurn, reasonsOf, refused} from './command.ts';

const MOST_AT_ONCE = 200;
const PAGE = 20;
/** Bytes of documents that one message may change, because a commit has at most 10 MiB. */
const MOST_BYTES = 8 * 1024 * 1024;

export const submit = command({
  schema: z.strictObject({action: z.literal('submit'), job: jobId, ...jobFields}),
  decide: async ({deps, tx}, {action: _, job, ...fields}) => {
    if (await tx.get(paths.job(deps.config.jobs_collection, job)))
      return refused(`there is a job "${job}" already: choose another id`, {job});
    const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
    const why = await submitJob(deps, tx, job, {...given, status: 'pending'} as Document);
    if (why !== undefined) return refused(why, {job});
    return {outcome: 'applied', reason: `job ${job} is submitted`, about: {job}};
  },
});

export const whichJobs = {
  job: jobId.optional().describe('Id of the job.'),
  where: z
    .strictObject({cause: z.enum(CAUSES)})
    .describe('`{"cause": …}`: jobs that failed for this cause.')
    .optional(),
  fresh: z.boolean().describe('True: the jobs begin with an empty checkpoint.').optional(),
};

/** Schedules a job whose event has not arrived yet, so that a command cannot come too early. */
export async function takeUpNamed(deps: Deps, {job}: {job?: string | undefined}): Promise<void> {
  if (job !== undefined) await scheduleNewJob(deps, job);
}

type WhichJobs = {job?: string | undefined; where?: {cause: string} | undefined; fresh?: boolean | undefined};

/** Ends a job. Its worker is notified at its next heartbeat. */
export function cancelJob(turn: MessageTurn, job: string): Promise<CommandOutcome> {
  const decide: Decide = (found, holder) => decideCancelJob(found, holder, turn.published_at, turn.now);
  return concludeJobs(turn, [job], {job}, decide);
}

/** Runs one ended job again, or up to 200 jobs that failed for a cause. */
export async function retryJobs(turn: MessageTurn, {job, where: {cause} = {cause: ''}, fresh}: WhichJobs) {
  const ids = job === undefined ? await failedFor(turn.deps, cause) : [job];
  const about = job === undefined ? {} : {job};
  if (ids.length === 0) return refused(`no job has failed for the cause "${cause}"`, about);
  return concludeJobs(turn, ids, about, found => decideRetryJob(found, turn.published_at, turn.now, fresh));
}

/** The query comes before the transaction, which can only read documents one by one. */
async function failedFor({config, store}: Deps, cause: string): Promise<string[]> {
  const where: Filter[] = [{field: 'cause', op: '==', value: cause}, FAILED];
  return fitting(pagesOf(store, config.jobs_collection, {where}, PAGE, PAGE));
}

/** Ids of the first jobs that fit into one commit, by number and bytes, and at least one. Pages are small, because a job has up to 1 MiB. */
async function fitting(pages: AsyncIterable<Stored[]>, isChanged = (_: Document) => true): Promise<string[]> {
  const ids: string[] = [];
  let bytes = 0;
  for await (const page of pages)
    for (const {id, data} of page.filter(({data}) => isChanged(data))) {
      bytes += Buffer.byteLength(JSON.stringify(data));
      if (ids.length > 0 && (bytes > MOST_BYTES || ids.length === MOST_AT_ONCE)) return ids;
      ids.push(id);
    }
  return ids;
}

type Decide = (job: Job, holder: Worker | undefined) => Decision<Job>;

async function concludeJobs(
  turn: MessageTurn,
  ids: readonly string[],
  about: About,
  decide: Decide,
): Promise<CommandOutcome> {
  const {deps, tx, now} = turn;
  const decided = await Promise.all(
    ids.map(async id => {
      const job = await orReason(() => jobRecords.get(deps, tx, id));
      if (job === undefined) return {decision: noJob(id)};
      if (typeof job === 'string') return {decision: rejected(job)};
      const holder = await holderOf(deps.log, tx, job);
      const others = await membersOf(deps, tx, job, job.lease?.worker);
      return {job, holders: [holder, ...others], decision: decide(job, holder)};
    }),
  );
  for (const {job, holders = [], decision} of decided) {
    if (decision.kind !== 'applied' || !job) continue;
    // The agents of a cancelled attempt hear of it by their next heartbeat.
    if (decision.next.lease === null) {
      storeEnded(deps, tx, job, decision.next, now);
      clearWork(tx, ...holders);
    } else {
      jobRecords.set(deps, tx, decision.next);
      for (const holder of holders) if (holder) workerRecords.set(tx, {...holder, drains: true});
    }
  }
  const decisions = decided.map(({decision}) => decision);
  const further = ids.length > 1 ? 'if more have failed for this cause, send it again for them' : undefined;
  const isApplied = decisions.some(({kind}) => kind === 'applied');
  return {outcome: isApplied ? 'applied' : 'rejected', reason: reasonsOf(decisions, further), about};
}

/** The document, or why it is invalid, so that an invalid document does not affect the others. */
async function orReason(read: () => Promise<Job | undefined>): Promise<Job | string | undefined> {
  try {
    return await read();
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return error.message;
  }
}

/** Deletes the documents of ended jobs. Their folders in the bucket stay. */
export const clear = command({
  schema: z.strictObject({
    action: z.literal('clear'),
    before_at: instant.describe('Only jobs that ended before this time.').optional(),
  }),
  decide: async ({deps, tx}, {before_at}) => {
    const {config, store} = deps;
    const isOld = ({status, completed_at}: Document) =>
      isFinal({status: status as Job['status']}) &&
      (before_at === undefined || (typeof completed_at === 'string' && completed_at < before_at));
    const collection = config.jobs_collection;
    const where: Filter[] =
      before_at === undefined ? [ENDED] : [{field: 'completed_at', op: '<', value: before_at}];
    const pages =
      before_at === undefined
        ? pagesOf(store, collection, {where}, PAGE, PAGE)
        : orderedPages(store, collection, {field: 'completed_at', where, limit: PAGE});
    const some = await fitting(pages, isOld);
    const current = await Promise.all(some.map(id => tx.get(paths.job(config.jobs_collection, id))));
    // A retry may have reopened a job since the query.
    const ended = some.filter((_, index) => isOld(current[index] ?? {}));
    for (const id of ended) deleteJob(deps, tx, id);
    if (ended.length === 0) return refused('no such job has ended', {});
    const reason = `${ended.length} ended jobs are deleted; if more have ended, send it again for them`;
    return {outcome: 'applied', reason, about: {}};
  },
});
