import assert from 'node:assert/strict';
import type {Run} from '../../../../shared/domain/records/run.ts';
import {afterMachineDeath, afterMachineFailedStream} from '../../../../shared/domain/run/machine-deaths.ts';
import {aRun, T0} from '../../../world/builders.ts';

describe('the breaker of a run', () => {
  const DEATH = {worker: 'tpu-a-0', cause: 'it hung', is_judged: true, total_shards: 0};
  const die = (count: number, run: Run, changes: Partial<typeof DEATH> = {}, now = T0): Run =>
    Array.from({length: count}).reduce<Run>(
      found => afterMachineDeath(found, {...DEATH, ...changes}, now),
      run,
    );

  it('ten machine deaths in a row without a shard pause a run', () => {
    assert.equal(die(9, aRun()).status, 'active');
    const paused = die(10, aRun());
    assert.equal(paused.status, 'paused');
    assert.match(paused.reason ?? '', /10 machines in a row.*tpu-a-0: it hung.*then resume/);
  });

  it('a stored shard resets the count of machine deaths', () => {
    const stored = {...die(9, aRun()), total_shards: 1};
    assert.deepEqual([die(1, stored).machine_deaths, die(9, stored).status], [1, 'active']);
  });

  it('a shard that the run document does not count yet resets the count too', () => {
    assert.equal(die(1, die(9, aRun()), {total_shards: 2}).machine_deaths, 1);
    assert.equal(
      die(10, die(9, aRun()), {total_shards: 2}).status,
      'paused',
      'and the same shards count once',
    );
  });

  it('silent machines without a verdict count as one within ten minutes', () => {
    const unjudged = {is_judged: false};
    const once = die(30, aRun(), unjudged);
    assert.deepEqual([once.machine_deaths, once.status], [1, 'active']);
    assert.equal(die(30, once, unjudged, T0 + 600_000).machine_deaths, 1);
    assert.equal(die(30, once, unjudged, T0 + 600_001).machine_deaths, 2);
    assert.equal(die(9, once).status, 'paused', 'judged machines count each');
    assert.equal(die(1, die(1, aRun()), unjudged).machine_deaths, 2, 'and stand for no silent machine');
  });

  it('three streams that failed for their machines pause a run', () => {
    const fail = (count: number) =>
      Array.from({length: count}).reduce<Run>(found => afterMachineFailedStream(found, '007', T0), aRun());
    assert.deepEqual([fail(2).status, fail(3).status], ['active', 'paused']);
    assert.match(fail(3).reason ?? '', /3 streams failed.*the last was 007/);
  });

  it('the breaker leaves paused, stopped and completed runs unchanged', () => {
    for (const status of ['paused', 'stopped', 'completed'] as const) {
      const {status: after, reason} = die(10, aRun({status, reason: 'as asked'}));
      assert.deepEqual([after, reason], [status, 'as asked']);
    }
  });
});
