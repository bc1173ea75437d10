import assert from 'node:assert/strict';
import {type Limiter, OPEN} from '../../../../shared/domain/records/limiter.ts';
import type {Refusal} from '../../../../shared/domain/worker/provider-states.ts';
import {
  afterAgent,
  afterAsk,
  afterFailedBoot,
  afterGiven,
  afterLostTry,
  afterPause,
  afterRefusal,
  isDue,
  limiterEvent,
  refusedSince,
  stateOf,
} from '../../../../shared/domain/zone/limiter.ts';
import {at, T0} from '../../../world/builders.ts';

const LIMITS = {retry_s: 60, longest_retry_s: 300};
const BUNDLE = 'c'.repeat(64);
const REASON = 'its boot failed: the disk is full';

const ms = (seconds: number) => T0 + seconds * 1000;
const ask = (limiter: Limiter, s: number) => afterAsk(limiter, BUNDLE, LIMITS, ms(s));
const refuse = (
  limiter: Limiter,
  s: number,
  kind: Refusal = 'no-capacity',
  isLate = false,
  asked_s?: number,
) =>
  afterRefusal(
    limiter,
    {kind, reason: `no: ${kind}`, isLate, asked_at: asked_s === undefined ? null : at(asked_s)},
    LIMITS,
    ms(s),
  );
const failBoots = (count: number, s = 0, limiter: Limiter = OPEN): Limiter =>
  Array.from({length: count}).reduce<Limiter>(
    found => afterFailedBoot(found, BUNDLE, REASON, ms(s)),
    limiter,
  );
const isAsked = (limiter: Limiter, s: number) => isDue(limiter, BUNDLE, ms(s));

describe('the limiter of a zone that refuses nodes', () => {
  for (const kind of ['no-capacity', 'quota', 'transient'] as const)
    it(`probes after ${kind}: one request after retry_s`, () => {
      const probing = refuse(ask(OPEN, 0), 1, kind);
      assert.deepEqual([probing.state, probing.cause, probing.reason], ['probing', kind, `no: ${kind}`]);
      assert.deepEqual([isAsked(probing, 61), isAsked(probing, 61.001)], [false, true]);
      assert.equal(isAsked(ask(probing, 62), 63), false, 'one request at a time');
    });

  const GIVEN = {...OPEN, has_given: true};

  for (const kind of ['permission', 'unknown', 'policy', 'bad-request'] as const)
    it(`stops after ${kind}: a person must act, and one request an hour is tried`, () => {
      const stopped = refuse(ask(GIVEN, 0), 1, kind);
      assert.deepEqual([stopped.state, stopped.cause], ['stopped', kind]);
      assert.deepEqual([isAsked(stopped, 3601), isAsked(stopped, 3602)], [false, true]);
      const tried = ask(stopped, 3602);
      assert.equal(isAsked(tried, 7202), false);
      assert.equal(refuse(tried, 3603, kind), tried, 'a further refusal changes nothing');
      assert.equal(afterGiven(tried, {asked_at: at(3602), isReady: false}).state, 'open');
    });

  for (const kinds of [['permission'], ['unknown'], ['permission', 'unknown']] as const)
    it(`tries again soon after ${kinds.join(' and ')} where the zone has given no node: Google may not have spread a role`, () => {
      let [limiter, s] = [ask(OPEN, 0), 0];
      for (const [tried, wait_s] of [120, 300, 900, 3600, 3600].entries()) {
        limiter = refuse(limiter, s, kinds[tried % kinds.length], false, s);
        assert.deepEqual([isAsked(limiter, s + wait_s), isAsked(limiter, s + wait_s + 1)], [false, true]);
        s += wait_s + 1;
        limiter = ask(limiter, s);
      }
    });

  for (const kind of ['no-capacity', 'quota'] as const)
    it(`probes after a stop for its permission once a try is refused for ${kind}: the permission is there again`, () => {
      const tried = ask(refuse(ask(OPEN, 0), 1, 'permission'), 3602);
      const probing = refuse(tried, 3603, kind, false, 3602);
      assert.deepEqual([probing.state, probing.cause, probing.refusals], ['probing', kind, 1]);
      assert.deepEqual([isAsked(probing, 3663), isAsked(probing, 3664)], [false, true]);
      assert.equal(refuse(tried, 3603, kind), tried, 'an answer to a request from before says nothing');
      assert.equal(refuse(tried, 3603, 'transient', false, 3602), tried, 'neither does an error');
    });

  it('counts each refused probe', () => {
    const first = refuse(ask(OPEN, 0), 1);
    const second = refuse(ask(first, 62), 63, 'no-capacity', false, 62);
    assert.deepEqual([first.refusals, second.refusals, second.since_at], [1, 2, first.since_at]);
    assert.match(limiterEvent('z', first, second) ?? '', /refused 2 times since 03:04, next try 03:06$/);
    assert.equal(afterGiven(second, {asked_at: at(62), isReady: false}).refusals, 0);
  });

  it('counts a burst once if the clock of its first refusal was slower than that of its requests', () => {
    const first = refuse(ask(OPEN, 10), 8);
    assert.equal(refuse(first, 900, 'no-capacity', false, 10).refusals, 1);
    assert.equal(refuse(first, 900, 'no-capacity', false, 11).refusals, 2);
  });

  it('counts many refusals of one burst once', () => {
    const first = refuse(ask(OPEN, 0), 1);
    assert.equal(refuse(first, 2), first);
    assert.equal(refuse(first, 50), first);
  });

  for (const [refused_s, wait_s] of [
    [60, 60],
    [1500, 60],
    [3000, 120],
    [7500, 300],
    [90_000, 300],
  ] as const)
    it(`asks again after ${wait_s} s, ${refused_s} s after the first refusal`, () => {
      const asked = ask(refuse(OPEN, 0), refused_s);
      assert.equal(asked.next_at, at(refused_s + wait_s));
    });

  it('opens with a listed node that was requested after the first refusal', () => {
    const probe = ask(refuse(ask(OPEN, 0), 1), 62);
    const before = afterGiven(probe, {asked_at: at(0), isReady: true});
    assert.deepEqual(before, {...probe, has_given: true}, 'a node of the refused burst is no evidence');
    const opened = afterGiven(probe, {asked_at: at(62), isReady: false});
    assert.deepEqual(opened, {...GIVEN, asked_at: at(62)});
  });

  it('needs a READY node where it refused a node that it had listed', () => {
    const probe = ask(refuse(OPEN, 1, 'no-capacity', true), 62);
    assert.equal(afterGiven(probe, {asked_at: at(62), isReady: false}).state, 'probing');
    assert.equal(afterGiven(probe, {asked_at: at(62), isReady: true}).state, 'open');
  });

  it('answers for requests from before the first refusal', () => {
    const probing = refuse(ask(OPEN, 0), 1);
    assert.deepEqual(refusedSince(probing, at(0)), {kind: 'no-capacity', reason: 'no: no-capacity'});
    assert.equal(refusedSince(probing, at(62)), undefined, 'the probe');
    assert.equal(refusedSince(OPEN, at(0)), undefined);
    assert.equal(refusedSince(failBoots(5), at(-1)), undefined, 'failed boots refuse nothing');
  });

  it('is an event when it closes, stops and opens', () => {
    const probing = refuse(OPEN, 1);
    assert.match(limiterEvent('z', OPEN, probing) ?? '', /^z gives no node: no: no-capacity.*other zones/);
    assert.equal(limiterEvent('z', probing, ask(probing, 70)), undefined);
    assert.match(limiterEvent('z', probing, OPEN) ?? '', /^z gives nodes again/);
    assert.match(
      limiterEvent('z', OPEN, refuse(OPEN, 1, 'permission')) ?? '',
      /^z refuses every node.*resume/,
    );
  });
});

describe('the limiter of a pool that a person paused', () => {
  it('allows no request, whatever happens', () => {
    const paused = afterPause(OPEN, T0);
    assert.deepEqual([paused.state, paused.cause], ['stopped', 'person']);
    assert.equal(isAsked(paused, 1e9), false);
    assert.equal(afterGiven(paused, {asked_at: at(9), isReady: true}), paused);
    assert.equal(afterAgent(failBoots(5, 1, paused), at(2)).cause, 'person');
  });
});

describe('the limiter of a zone or pool whose boots fail', () => {
  const isStopped = (limiter: Limiter, bundle = BUNDLE) => stateOf(limiter, bundle) === 'stopped';

  it('stops after five failed boots in a row', () => {
    assert.deepEqual([isStopped(failBoots(4)), isStopped(failBoots(5))], [false, true]);
    assert.deepEqual([failBoots(5).cause, failBoots(5).reason], ['boots', REASON]);
  });

  it('stops a probing zone too', () => {
    assert.equal(isStopped(failBoots(5, 2, refuse(OPEN, 1))), true);
  });

  it('opens with a message of an agent after the last failed boot', () => {
    assert.equal(isStopped(failBoots(4, 2, afterAgent(failBoots(4), at(1)))), false, 'the count starts anew');
    assert.deepEqual(afterAgent(failBoots(5), at(1)), OPEN);
    assert.equal(isStopped(afterAgent(failBoots(5), at(-1))), true, 'a word from before says nothing');
    assert.equal(
      afterAgent(failBoots(1, 2, refuse(OPEN, 1)), at(3)).state,
      'probing',
      'a sold-out zone stays so',
    );
  });

  it('opens for a new bundle, which has its own count', () => {
    const next = 'd'.repeat(64);
    assert.equal(isStopped(failBoots(5), next), false);
    assert.equal(afterFailedBoot(failBoots(5), next, REASON, T0).failed_boots, 1);
    assert.equal(afterFailedBoot(failBoots(5), next, REASON, T0).state, 'open');
    assert.equal(afterAsk(failBoots(5), next, LIMITS, T0).state, 'open');
  });

  it('tries one boot an hour', () => {
    const stopped = failBoots(5);
    assert.deepEqual([isAsked(stopped, 3600), isAsked(stopped, 3601)], [false, true]);
    const tried = ask(stopped, 3601);
    assert.deepEqual([isAsked(tried, 7201), isAsked(tried, 7202)], [false, true]);
    assert.equal(failBoots(1, 4200, tried).next_at, tried.next_at, 'a failed try brings no other');
  });

  it('tries again after retry_s where the try was refused or taken', () => {
    const tried = ask(failBoots(5), 3601);
    assert.equal(refuse(tried, 3602), tried, 'a refusal is no verdict');
    const lost = (born_s: number, is_canary = false) =>
      afterLostTry(tried, {born_at: at(born_s), is_canary}, LIMITS, ms(3700));
    assert.equal(lost(3601).next_at, at(3760));
    assert.equal(lost(-9), tried, 'a node from before the stop is no try');
    assert.equal(lost(3601, true), tried, 'a canary of the silence guard is no try');
  });
});
