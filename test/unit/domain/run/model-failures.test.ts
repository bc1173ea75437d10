import assert from 'node:assert/strict';
import {constraint} from '../../../../shared/domain/records/constraint.ts';
import type {Run} from '../../../../shared/domain/records/run.ts';
import {afterModelMiss, afterModelPause, isCertain} from '../../../../shared/domain/run/model-failures.ts';
import {aRun, at, T0} from '../../../world/builders.ts';

describe('the failures of a model', () => {
  const RETRY = {first_s: 600, longest_s: 2000};
  const miss = (run: Run, total_shards = 0) => afterModelMiss(run, total_shards, 'no answer', RETRY, T0);

  it('are certain while neither the run nor the stream has a shard', () => {
    const has = (run: number, stream: number) => isCertain(aRun({total_shards: run}), stream);
    assert.deepEqual([has(0, 0), has(1, 0), has(0, 1)], [true, false, false]);
  });

  it('count from one after a shard, also one that the run does not count yet', () => {
    const once = miss(aRun());
    assert.deepEqual([once.model_misses, miss(once).model_misses], [1, 2]);
    assert.equal(miss({...once, total_shards: 1}).model_misses, 1);
    assert.equal(miss(once, 1).model_misses, 1);
    assert.equal(miss(miss(once, 1), 1).model_misses, 2, 'and the same shard counts once');
  });

  it('pause the run for twice the time after each further one, and the try ends the pause with a fresh dirty flag', () => {
    let run = miss(aRun({changed_at: null}));
    const waits_s: number[] = [];
    for (let tries = 0; tries < 4; tries++) {
      run = miss({...run, waits: {...constraint('permission', 'us-central1-a'), since_at: at(0)}});
      const next_ms = Date.parse(run.model_next_at ?? '');
      waits_s.push((next_ms - T0) / 1000);
      assert.deepEqual([run.status, run.waits], ['paused', null]);
      assert.equal(afterModelPause(run, next_ms - 1), undefined);
      run = afterModelPause(run, next_ms) ?? assert.fail();
      const {status, reason, model_next_at, changed_at} = run;
      assert.deepEqual(
        [status, reason, model_next_at, changed_at],
        ['active', null, null, at((next_ms - T0) / 1000)],
      );
    }
    assert.deepEqual(waits_s, [600, 1200, 2000, 2000]);
  });
});
