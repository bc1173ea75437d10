/** Failures of the model or the spec of a run: one that is certain to come again ends the run, and a model that does not arrive pauses it. */
import {nextRunName} from '../names.ts';
import {iso} from '../time.ts';
import {pausedByBreaker} from './machine-deaths.ts';
import type {Run} from './run.ts';

export type ModelFailures = {
  /** Reason of the failure that ended the run, because every stream fails in the same way. `retry` and `rebuild` clear it. */
  certain_failure: string | null;
  /** Tries in a row in which the hub did not deliver the model, and the run's shards by then. */
  model_misses: number;
  model_misses_shards: number;
};

export const NO_MODEL_FAILURES: ModelFailures = {
  certain_failure: null,
  model_misses: 0,
  model_misses_shards: 0,
};

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

/** The command that starts another run with the spec and the streams of this one. */
export function againCommand(run: string): string {
  return `gleaner run start ${nextRunName(run)} --from ${run}`;
}

/** The run after a try in which the hub did not deliver its model. */
export function afterModelMiss(run: Run, total_shards: number, reason: string, now: number): Run {
  const model_misses_shards = Math.max(run.total_shards, total_shards);
  const model_misses = model_misses_shards > run.model_misses_shards ? 1 : run.model_misses + 1;
  const counted = {...run, model_misses, model_misses_shards, updated_at: iso(now)};
  if (model_misses < MOST_MODEL_MISSES) return counted;
  return pausedByBreaker(counted, `its model did not arrive in ${model_misses} tries: ${reason}`, now);
}
