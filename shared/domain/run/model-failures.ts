/** Failures of the model or the spec of a run: one that is certain to come again ends the run, and a model that does not arrive pauses it. */

import {type Constraint, constraint, minuteText} from '../records/constraint.ts';
import {againCommand, endedAs, pausedFor, type Run} from '../records/run.ts';
import {iso, msOf} from '../time.ts';
import {withMark} from './marks.ts';

/** Tries without the model after which a run gives up its TPUs. */
const MOST_MODEL_MISSES = 2;
/** Seconds until a run without its model tries it again. Each further miss doubles them. */
export type ModelRetry = {first_s: number; longest_s: number};

/** True if a failure of the model comes again with every stream: no shard proves that the model works. */
export function isCertain(run: Run, shards_of_stream: number): boolean {
  return run.total_shards === 0 && shards_of_stream === 0;
}

export function afterCertainFailure(run: Run, failure: string, now: number): Run {
  const reason = `${failure}. Every stream fails in the same way, and the spec is frozen: \`${againCommand(run.run)}\` starts another run, with the options that change; \`gleaner run retry ${run.run}\` tries the same spec again`;
  return {...endedAs('failed', run, reason, now), certain_failure: failure};
}

/**
 * The run after a try in which the hub did not deliver its model. Enough misses in a row pause the run until its next try. Messages of people
 * decide before and after the pause, so the pause has no publish time. A miss after the pause counts nothing: its TPU began before.
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

/** The run that tries its model again. Undefined before the time of the next try, and for a run that is paused for another cause. */
export function afterModelPause(run: Run, now: number): Run | undefined {
  const {status, model_next_at} = run;
  if (status !== 'paused' || model_next_at === null || now < msOf(model_next_at)) return undefined;
  return {...withMark(run, now), status: 'active', reason: null, model_next_at: null};
}

/** True for a pause in a row of tries without the model: the first pause of the row was told. */
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
