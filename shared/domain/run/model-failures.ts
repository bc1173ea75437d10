/** Failures of the model or the spec of a run: one that is certain to come again ends the run, and a model that does not arrive pauses it. */
import {iso} from '../time.ts';
import {pausedByBreaker} from './machine-deaths.ts';
import {againCommand, type Run} from './run.ts';

/** Tries without the model after which a run gives up its TPUs. */
const MOST_MODEL_MISSES = 2;

/** True if a failure of the model comes again with every stream: no shard proves that the model works. */
export function isCertain(run: Run, shards_of_stream: number): boolean {
  return run.total_shards === 0 && shards_of_stream === 0;
}

/** The run after a failure of its model that comes again with every stream. */
export function afterCertainFailure(run: Run, failure: string, now: number): Run {
  const reason = `${failure}. Every stream fails in the same way, and the spec is frozen: \`${againCommand(run.run)}\` starts another run, with the options that change; \`gleaner run retry ${run.run}\` tries the same spec again`;
  return {...run, status: 'failed', reason, certain_failure: failure, updated_at: iso(now)};
}

/** The run after a try in which the hub did not deliver its model. */
export function afterModelMiss(run: Run, total_shards: number, reason: string, now: number): Run {
  const model_misses_shards = Math.max(run.total_shards, total_shards);
  const model_misses = model_misses_shards > run.model_misses_shards ? 1 : run.model_misses + 1;
  const counted = {...run, model_misses, model_misses_shards, updated_at: iso(now)};
  if (model_misses < MOST_MODEL_MISSES) return counted;
  return pausedByBreaker(counted, `its model did not arrive in ${model_misses} tries: ${reason}`, now);
}
