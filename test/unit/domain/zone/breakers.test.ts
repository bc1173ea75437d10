import assert from 'node:assert/strict';
import type {Run} from '../../../../shared/domain/run/run.ts';
import {
  afterFailedBoot,
  afterGoodBoot,
  afterMachineDeath,
  afterMachineFailedStream,
  afterTry,
  type Boots,
  isStopped,
  mayBoot,
  NO_BOOTS,
} from '../../../../shared/domain/zone/breakers.ts';
import {aRun, at, T0} from '../../../support/builders.ts';

const BUNDLE = 'c'.repeat(64);
const REASON = 'its boot failed: the disk is full';
const failed = (count: number, boots: Boots = NO_BOOTS): Boots =>
  Array.from({length: count}).reduce<Boots>(found => afterFailedBoot(found, BUNDLE, REASON, T0), boots);

describe('the breaker of boots', () => {
  it('five failed boots in a row stop creates', () => {
    assert.deepEqual([isStopped(failed(4), BUNDLE), isStopped(failed(5), BUNDLE)], [false, true]);
  });

  it('a word of an agent resets the count of failed boots', () => {
    assert.equal(isStopped(failed(4, afterGoodBoot(failed(4), at(1))), BUNDLE), false);
    assert.equal(isStopped(afterGoodBoot(failed(5), at(1)), BUNDLE), false, 'the stop ends');
  });

  it('a word from before the last failed boot does not end a stop', () => {
    assert.equal(isStopped(afterGoodBoot(failed(5), at(-1)), BUNDLE), true);
  });

  it('a new bundle ends a stop, and has its own count', () => {
    const next = 'd'.repeat(64);
    assert.equal(isStopped(failed(5), next), false);
    assert.equal(afterFailedBoot(failed(5), next, REASON, T0).unheard, 1);
  });

  it('a stop allows one boot an hour', () => {
    const stopped = failed(5);
    const hour = T0 + 3_600_000;
    assert.deepEqual(
      [mayBoot(stopped, BUNDLE, hour), mayBoot(stopped, BUNDLE, hour + 1)],
      [false, true],
      'an hour after the stop',
    );
    const tried = afterTry(stopped, hour + 1);
    assert.equal(mayBoot(tried, BUNDLE, hour + 2), false);
    assert.equal(mayBoot(tried, BUNDLE, 2 * hour - T0 + 2), true);
  });
});

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
  });

  it('three streams that failed for their machines pause a run', () => {
    const fail = (count: number) =>
      Array.from({length: count}).reduce<Run>(found => afterMachineFailedStream(found, '007', T0), aRun());
    assert.deepEqual([fail(2).status, fail(3).status], ['active', 'paused']);
    assert.match(fail(3).reason ?? '', /3 streams failed.*the last was 007/);
  });

  it('the breaker leaves paused, stopped and completed runs unchanged', () => {
    for (const status of ['paused', 'cancelled', 'completed'] as const) {
      const {status: after, reason} = die(10, aRun({status, reason: 'as asked'}));
      assert.deepEqual([after, reason], [status, 'as asked']);
    }
  });
});
