/** Failures of the model or the spec of a run: one that every stream would repeat ends the run; a model that cannot be downloaded pauses it. */

import {type Constraint, constraint, minuteText} from '../records/constraint.ts';
import {againCommand, endedAs, pausedFor, type Run} from '../records/run.ts';
import {iso, msOf} from '../time.ts';
import {withMark} from './marks.ts';

/** Tries without the model after which a run releases its TPUs. */
const MOST_MODEL_MISSES = 2;
/** Seconds until a paused run tries its model again. Each further failure doubles the wait. */
export type ModelRetry = {first_s: number; longest_s: number};

/** True if every stream would repeat a failure of the model, because no shard proves that the model works. */
export function isCertain(run: Run, shards_of_stream: number): boolean {
  return run.total_shards === 0 && shards_of_stream === 0;
}

export function afterCertainFailure(run: Run, failure: string, now: number): Run {
  const reason = `${failure}. Every stream fails in the same way, and the spec is frozen: \`${againCommand(run.run)}\` starts another run, with the options that change; \`gleaner run retry ${run.run}\` tries the same spec again`;
  return {...endedAs('failed', run, reason, now), certain_failure: failure};
}

/**
 * The run after a try in which the hub did not deliver its model. Enough failures in a row pause the run until its next try. The pause has no
 * publish time, so a message published before it still applies. A failure after the pause does not count: its TPU had started before.
 */
export function afterModelMiss(
  run: Run,
  total_shards: number,
  reason: string,
  {first_s, longest_s}: ModelRetry,
  now: number,
): Run {
  if (run.status !== 'active') return run;
  const model_misses_shards = Math.max(run.total_shards, total_shards);
  const model_misses = model_misses_shards > run.model_misses_shards ? 1 : run.model_misses + 1;
  const counted = {...run, model_misses, model_misses_shards, updated_at: iso(now)};
  if (model_misses < MOST_MODEL_MISSES) return counted;
  const wait_s = Math.min(longest_s, first_s * 2 ** (model_misses - MOST_MODEL_MISSES));
  const model_next_at = iso(now + wait_s * 1000);
  const why = `its model did not arrive in ${model_misses} tries: ${reason}${nextTryText(model_next_at)}`;
  return {...counted, ...pausedFor(why, now), model_next_at};
}

/** The run that tries its model again. Undefined before the next try is due, and for a run that is paused for another cause. */
export function afterModelPause(run: Run, now: number): Run | undefined {
  const {status, model_next_at} = run;
  if (status !== 'paused' || model_next_at === null || now < msOf(model_next_at)) return undefined;
  return {...withMark(run, now), status: 'active', reason: null, model_next_at: null};
}

/** True for a later pause in a row of failed tries; people were notified of the first one. */
export function isFurtherMiss({status, model_next_at, model_misses}: Run): boolean {
  return status === 'paused' && model_next_at !== null && model_misses > MOST_MODEL_MISSES;
}

export function modelConstraint(waiting: Run): Constraint | undefined {
  const {run, status, reason, paused_at, model_next_at} = waiting;
  if (status !== 'paused' || model_next_at === null) return undefined;
  const cause = reason?.replace(nextTryText(model_next_at), '') ?? null;
  return constraint('model', `run ${run}`, cause, {since_at: paused_at, next_try_at: model_next_at});
}

const nextTryText = (model_next_at: string) => `; next try at ${minuteText(model_next_at)}`;
