import {z} from 'zod';
import {runId, streamText} from '../../../contracts/messages/schemas.ts';
import {type Decision, decideCancel, decideRetry} from '../../../domain/commands/commands.ts';
import {paths} from '../../../domain/names.ts';
import {isOpen, NO_MODEL_FAILURES} from '../../../domain/records/run.ts';
import {isUnfinished, type Stream} from '../../../domain/records/stream.ts';
import {withMark} from '../../../domain/run/marks.ts';
import {utcText} from '../../../domain/time.ts';
import type {Deps} from '../../deps.ts';
import {FAILED, runRecords, streamRecords} from '../../documents/documents.ts';
import {clearWork, holderOf} from '../../documents/lease-documents.ts';
import {type About, type CommandOutcome, command, type MessageTurn, reasonsOf, refused} from './command.ts';
import {cancelJob, retryJobs, takeUpNamed, whichJobs} from './job-commands.ts';

/** Failed streams that one message revives. Repeating the message revives more. */
const MOST_AT_ONCE = 200;

/** Tries one failed stream again, or every failed stream of the run; or one ended job, or those that failed for a cause. */
export const retry = command({
  schema: z
    .strictObject({
      action: z.literal('retry'),
      run: runId.optional(),
      stream: streamText.optional(),
      ...whichJobs,
    })
    .refine(({run, job, where}) => [run, job, where].filter(given => given !== undefined).length === 1, {
      message: 'name a run, a job, or where: {cause}',
    })
    .refine(({run, stream}) => stream === undefined || run !== undefined, 'a stream needs its run')
    .refine(({run, fresh}) => run === undefined || !fresh, 'fresh is for jobs: a stream has no checkpoint')
    .meta({oneOf: [{required: ['run']}, {required: ['job']}, {required: ['where']}]}),
  prepare: takeUpNamed,
  decide: async (turn, {run, stream, job, where, fresh}) => {
    if (run === undefined) return retryJobs(turn, {job, where, fresh});
    const ids = stream === undefined ? await failedStreams(turn.deps, run) : [stream];
    const nothing = stream === undefined ? `run "${run}" has no failed stream` : noStream(run, stream);
    const about = {run, ...(stream === undefined ? {} : {stream})};
    const of = {run, ids, about, nothing, revives: stream === undefined};
    return onStreams(turn, of, found => decideRetry(found, turn.published_at, turn.now));
  },
});

/** Fails a stream, or ends a job. Its worker is notified at its next heartbeat. */
export const cancel = command({
  schema: z
    .strictObject({
      action: z.literal('cancel'),
      run: runId.optional(),
      stream: streamText.optional(),
      job: whichJobs.job,
    })
    .refine(
      ({run, stream, job}) => (job === undefined) === (run !== undefined && stream !== undefined),
      'name a run and its stream, or a job',
    )
    .meta({oneOf: [{required: ['run', 'stream']}, {required: ['job']}]}),
  prepare: takeUpNamed,
  decide: async (turn, {run = '', stream = '', job}) => {
    if (job !== undefined) return cancelJob(turn, job);
    const of = {run, ids: [stream], about: {run, stream}, nothing: noStream(run, stream), revives: false};
    return onStreams(turn, of, found => decideCancel(found, turn.published_at, turn.now));
  },
});

function noStream(run: string, stream: string): string {
  return `there is no stream ${run}/${stream}`;
}

/** The query comes before the transaction, which can only read documents one by one. */
async function failedStreams({store}: Deps, run: string): Promise<string[]> {
  const failed = await store.query(paths.streams(run), {where: [FAILED], limit: MOST_AT_ONCE + 1});
  return failed.map(({id}) => id);
}

type OfStreams = {run: string; ids: readonly string[]; about: About; nothing: string; revives: boolean};

/**
 * Decides about each stream. The message is applied if any stream changes. An ended run with an unfinished stream opens again. `revives`: so
 * does a run that a certain failure ended, even without a failed stream.
 */
async function onStreams(
  turn: MessageTurn,
  of: OfStreams,
  decide: (stream: Stream) => Decision<Stream>,
): Promise<CommandOutcome> {
  const {deps, tx, now} = turn;
  const {run, ids, about, nothing, revives} = of;
  const parent = await runRecords.get(tx, run);
  if (!parent) return refused(`there is no run "${run}"`, about);
  if (parent.status === 'stopped') return refused(`run "${run}" was stopped, and a stop is final`, about);
  if (parent.expired_at !== null)
    return refused(
      `the documents of the streams of run "${run}" were deleted at ${utcText(parent.expired_at)}: send {"action":"rebuild","run":"${run}"} first`,
      about,
    );
  const streams: Stream[] = [];
  for (const id of ids.slice(0, MOST_AT_ONCE)) {
    const each = await streamRecords.get(tx, run, id);
    if (each) streams.push(each);
  }
  const holders = await Promise.all(streams.map(stream => holderOf(deps.log, tx, stream)));
  const decisions = streams.map(decide);
  const changed = decisions.filter(decision => decision.kind === 'applied');
  for (const {next} of changed) streamRecords.set(tx, next);
  for (const [index, decision] of decisions.entries())
    if (decision.kind === 'applied' && decision.next.lease === null) clearWork(tx, holders[index]);
  const isRevived = revives && parent.certain_failure !== null;
  if (isRevived || (changed.some(({next}) => isUnfinished(next)) && !isOpen(parent)))
    runRecords.set(tx, withMark({...parent, ...NO_MODEL_FAILURES, status: 'active', reason: null}, now));
  const further = ids.length > MOST_AT_ONCE ? 'more have failed: send it again for them' : undefined;
  const reasons = reasonsOf(decisions, further);
  return {
    outcome: changed.length > 0 || isRevived ? 'applied' : 'rejected',
    reason: reasons || (isRevived ? `${run} is active again` : nothing),
    about,
  };
}
