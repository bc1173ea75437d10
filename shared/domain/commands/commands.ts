/** Decisions about operators' messages; each concerns one document. */

import {isPausedByBudget} from '../billing/budget.ts';
import {streamObject} from '../names.ts';
import {OPEN} from '../records/limiter.ts';
import {NO_MACHINE_DEATHS} from '../records/machine-deaths.ts';
import type {Pool} from '../records/pool.ts';
import {outdatedText, splitByPublishTime, type Timed, withPublishTime} from '../records/publish-order.ts';
import {endedAs, isOpen, NO_MODEL_FAILURES, pausedFor, type Run} from '../records/run.ts';
import {type Stream, TRIED_AGAIN} from '../records/stream.ts';
import {hasEnded, type Worker} from '../records/worker.ts';
import {withMark} from '../run/marks.ts';
import {revokeLease} from '../stream/lease.ts';
import {iso, utcText} from '../time.ts';
import {afterPause} from '../zone/limiter.ts';

const BY_PERSON = 'a person paused it';

export type RunAction = 'start' | 'pause' | 'resume' | 'stop';

/**
 * Decision about the document that a message names. For each field, the message that was published last wins, in whatever order messages
 * arrive. `stop` and `cancel` apply however late they arrive.
 */
export type Decision<T> = {kind: 'applied'; next: T; what: string} | Rejection;
export type Rejection = {kind: 'rejected'; reason: string};

export const applied = <T>(next: T, what: string): Decision<T> => ({kind: 'applied', next, what});
export const rejected = (reason: string): Rejection => ({kind: 'rejected', reason});

/**
 * Decides a command about a run. A command for a status that the run already has applies and changes nothing, so a repeated message is
 * harmless. An impossible command is rejected with the reason. `stop` is final: a completed run stays completed and accepts no further
 * streams.
 */
export function decideRunAction(
  action: RunAction,
  name: string,
  run: Run | undefined,
  published_at: string,
  now: number,
): Decision<Run> {
  if (!run) return noRun(name);
  const message_times = withPublishTime(run.message_times, ['status'], published_at);
  const become = (status: Run['status'], what: string): Decision<Run> => {
    if (action !== 'stop' && isOutdated(run, 'status', published_at)) return outdatedBy(run, ['status']);
    const isSame = run.status === status;
    return applied(
      isSame ? {...run, message_times} : {...run, message_times, status, updated_at: iso(now)},
      isSame ? `${name} was ${status} already` : what,
    );
  };
  const refuse = (): Decision<Run> =>
    rejected(
      `run "${name}" is ${run.status}: ${action} has no effect${run.status === 'stopped' ? ', because a stop is final; drop the streams as a new run' : ''}`,
    );
  switch (action) {
    case 'start':
    case 'resume':
      if (run.status === 'active' || run.status === 'paused') {
        const done = action === 'start' ? `${name} started` : `${name} resumed`;
        const decision = become('active', `${done}${pauseText(run)}`);
        if (decision.kind === 'rejected') return decision;
        // The reason of a pause ends with it.
        const reason = run.status === 'paused' ? null : run.reason;
        const next = {...decision.next, reason, ...NO_MACHINE_DEATHS, ...NO_MODEL_FAILURES};
        return {...decision, next: next.status === run.status ? next : withMark(next, now)};
      }
      if (action === 'start' && run.status !== 'stopped')
        return applied(run, `${name} is ${run.status}: nothing is left to start`);
      return refuse();
    case 'pause':
      if (run.status === 'active' || run.status === 'paused') {
        const drains = run.streams_in_progress > 0 ? '; TPUs at work store their windows first' : '';
        const decision = become('paused', `${name} paused${drains}`);
        const isHeld = run.status === 'paused' && run.model_next_at === null;
        if (decision.kind === 'rejected' || isHeld) return decision;
        const next = {...decision.next, ...pausedFor(BY_PERSON, now), model_next_at: null};
        return {...decision, next};
      }
      return refuse();
    case 'stop': {
      if (run.status === 'completed')
        return applied(
          {...run, message_times, stopped_at: run.stopped_at ?? iso(now)},
          `${name} is completed and accepts no further streams`,
        );
      if (run.status === 'stopped') return become('stopped', '');
      // The reason of a pause, or of a wait, ends with it.
      const reason = run.status === 'paused' || run.waits ? null : run.reason;
      return applied(
        {...endedAs('stopped', run, reason, now), message_times, stopped_at: iso(now)},
        `${name} stopped for good`,
      );
    }
    default:
      return action satisfies never;
  }
}

/** Says that the cause of a pause by a breaker or a budget would pause the run again. Figures of a budget may be out of date. */
function pauseText(run: Run): string {
  const {status, reason} = run;
  if (status !== 'paused' || reason === null || reason === BY_PERSON) return '';
  if (isPausedByBudget(run)) return '; it is paused again if a budget allows no more';
  return `; it is paused again while this holds: ${reason}`;
}

/** `delete`: what a run that is over has in the bucket and in the database. Until its document goes too, last, the run takes nothing new. */
export function decideDeleteRun(name: string, run: Run | undefined, now: number): Decision<Run> {
  if (!run) return noRun(name);
  if (isOpen(run))
    return rejected(
      `run "${name}" is ${run.status}: end it for good first, with \`gleaner run stop ${name}\``,
    );
  const {stopped_at, expired_at} = run;
  const ended = endedAs('stopped', run, 'it is being deleted', now);
  const times = {stopped_at: stopped_at ?? iso(now), expired_at: expired_at ?? iso(now)};
  return applied({...ended, ...times}, `run ${name} is being deleted`);
}

export function noRun(name: string): Rejection {
  return rejected(`there is no run "${name}": drop ${streamObject(name, '000')} first`);
}

/** `recreate`: deletes the slot's TPU in any state, and creates it again if the pool still wants it then. */
export function decideRecreate(name: string, worker: Worker | undefined, published_at: string) {
  return decideHeld(name, worker, published_at, current => {
    const next = {...current, held: false};
    if (!hasEnded(current)) return [{...next, recreate: true}, 'will be recreated'];
    return [next, `is ${current.phase}: it is created again when there is work for it`];
  });
}

/** `delete`: deletes the slot's TPU, releases its stream, and keeps the slot empty until `recreate`. */
export function decideDelete(name: string, worker: Worker | undefined, published_at: string) {
  return decideHeld(name, worker, published_at, current => [
    {...current, held: true, recreate: !hasEnded(current)},
    'will be deleted, and its slot stays empty until recreate',
  ]);
}

function decideHeld(
  name: string,
  worker: Worker | undefined,
  published_at: string,
  change: (worker: Worker) => [next: Worker, what: string],
): Decision<Worker> {
  if (!worker) return rejected(`there is no worker "${name}"`);
  if (isOutdated(worker, 'held', published_at)) return outdatedBy(worker, ['held']);
  const [next, what] = change(worker);
  const message_times = withPublishTime(worker.message_times, ['held'], published_at);
  return applied({...next, message_times}, `${name} ${what}`);
}

/** `retry`: revives a failed stream. Its failures are reset; its checkpoint stays. */
export function decideRetry(stream: Stream, published_at: string, now: number): Decision<Stream> {
  const of = `${stream.run}/${stream.stream}`;
  if (stream.status !== 'failed') return rejected(`stream ${of} is ${stream.status}, not failed`);
  // A worker would only find the stream empty again, on a TPU that costs money.
  if (stream.size_bytes === 0) return rejected(`stream ${of} is empty: drop it again with its records`);
  if (stream.refused_generation !== null)
    return rejected(
      `stream ${of} was overwritten with other content: drop its first content again${stream.total_shards === 0 ? ', or cancel the stream and then drop the new content again' : ''}`,
    );
  if (isOutdated(stream, 'status', published_at)) return outdatedBy(stream, ['status']);
  const next = {
    ...stream,
    message_times: withPublishTime(stream.message_times, ['status'], published_at),
    ...TRIED_AGAIN,
    updated_at: iso(now),
  };
  return applied(next, `stream ${of} is tried again`);
}

const CANCELLED = 'cancelled by a message; retry revives it';

/** `cancel`: fails the stream. The next heartbeat tells its worker. */
export function decideCancel(stream: Stream, published_at: string, now: number): Decision<Stream> {
  const of = `${stream.run}/${stream.stream}`;
  if (stream.status === 'completed') return rejected(`stream ${of} is completed`);
  const next = {
    ...revokeLease(stream, now),
    message_times: withPublishTime(stream.message_times, ['status'], published_at),
    status: 'failed' as const,
    last_error: CANCELLED,
    refused_generation: null, // a person has decided: objects uploaded from now on are new
    updated_at: iso(now),
  };
  return applied(next, `stream ${of} is cancelled`);
}

export function isOutdated({message_times}: Timed, field: string, published_at: string): boolean {
  return splitByPublishTime(message_times, [field], published_at).outdated.length > 0;
}

export function outdatedBy({message_times}: Timed, fields: readonly string[]): Rejection {
  return rejected(outdatedText(message_times, fields));
}

/** `pause` of a pool: creates no node until `resume`. Living nodes go on. */
export function decidePausePool(pool: Pool, published_at: string, now: number): Decision<Pool> {
  if (isOutdated(pool, 'creates', published_at)) return outdatedBy(pool, ['creates']);
  const message_times = withPublishTime(pool.message_times, ['creates'], published_at);
  const next = {...pool, message_times, limiter: afterPause(pool.limiter, now)};
  return applied(next, `pool ${pool.pool} creates no node until resume`);
}

/** `resume` of a pool: allows creates again in the pool and in its zones, and resets the count of failed boots. */
export function decideResumePool(pool: Pool, published_at: string): Decision<Pool> {
  if (isOutdated(pool, 'creates', published_at)) return outdatedBy(pool, ['creates']);
  const {cause, since_at, has_given} = pool.limiter;
  const stopped_at = cause === 'person' ? null : since_at;
  if (stopped_at !== null && published_at < stopped_at)
    return rejected(`outdated: pool ${pool.pool} stopped creating nodes later, at ${utcText(stopped_at)}`);
  const what = cause === null ? 'was not stopped' : 'creates nodes again';
  const message_times = withPublishTime(pool.message_times, ['creates'], published_at);
  return applied({...pool, message_times, limiter: {...OPEN, has_given}}, `pool ${pool.pool} ${what}`);
}
