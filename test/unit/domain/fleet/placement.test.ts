import assert from 'node:assert/strict';
import {
  allowance,
  askedFor,
  askOf,
  gaveNode,
  lostNode,
  newZone,
  type PlacementLimits,
  type Provisioning,
  rateOf,
  refusedBy,
  type Zone,
} from '../../../../shared/domain/fleet/placement.ts';
import {at, T0} from '../../../support/builders.ts';

const LIMITS: PlacementLimits = {
  retry_s: 120,
  quota_s: 300,
  churn_window_s: 1800,
  short_life_s: 300,
  creates_per_hour: 5,
  queue_s: 3600,
};

function aZone(changes: Partial<Zone> = {}): Zone {
  return {...newZone('us-central1-a', T0), ...changes};
}

/** Nodes that lived so many seconds, lost one after the other in the last minutes. */
function losses(...lived: number[]): Zone['losses'] {
  return lived.map((lived_s, index) => ({ended_at: at(-60 * (lived.length - index)), lived_s}));
}

describe('how a zone is asked for nodes', () => {
  const cases: {name: string; given: Zone['losses']; then: string}[] = [
    {name: 'nothing was lost', given: [], then: 'full'},
    {name: 'two short lives are chance', given: losses(10, 10), then: 'full'},
    {name: 'three short lives', given: losses(10, 10, 299), then: 'stopped'},
    {name: 'short and long lives, half and half', given: losses(10, 600, 10, 600), then: 'tenth'},
    {name: 'a third of them short', given: losses(10, 600, 700), then: 'half'},
    {name: 'one short life of six', given: losses(10, 600, 600, 600, 600, 600), then: 'full'},
    {name: 'lives that are neither short nor long', given: losses(300, 400, 599), then: 'full'},
  ];
  for (const {name, given, then} of cases)
    it(`${name}: ${then}`, () => {
      assert.equal(rateOf(aZone({losses: given}), LIMITS, T0), then);
    });

  it('what was lost longer ago than the window is forgotten', () => {
    const zone = aZone({losses: losses(10, 10, 10)});
    assert.equal(rateOf(zone, LIMITS, T0 + 1600_000), 'stopped');
    assert.equal(rateOf(zone, LIMITS, T0 + 1800_000), 'full');
  });

  it('a zone of which nothing is known may give as many as an hour allows', () => {
    assert.equal(allowance(undefined, LIMITS, T0), 5);
  });

  it('what was asked for within the hour is taken off', () => {
    let zone = aZone();
    for (let minute = 0; minute < 5; minute++) zone = askedFor(zone, T0 + minute * 60_000);
    assert.equal(allowance(zone, LIMITS, T0 + 240_000), 0);
    assert.equal(allowance(zone, LIMITS, T0 + 3_600_001), 1);
    assert.equal(allowance(zone, LIMITS, T0 + 3_900_000), 5);
  });

  for (const [given, every_s] of [
    [losses(10, 600, 700), 120],
    [losses(10, 600, 10, 600), 600],
  ] as const)
    it(`a churning zone gives one node every ${every_s} s`, () => {
      const zone = askedFor(aZone({losses: given}), T0);
      assert.equal(allowance(zone, LIMITS, T0 + every_s * 1000), 0);
      assert.equal(allowance(zone, LIMITS, T0 + every_s * 1000 + 1), 1);
    });

  it('a zone in which nothing lives is left alone until its losses are old', () => {
    const zone = aZone({losses: losses(10, 10, 10)});
    assert.equal(allowance(zone, LIMITS, T0), 0);
    assert.equal(allowance(zone, LIMITS, T0 + 1800_000), 5);
  });

  for (const [kind, wait_s] of [
    ['no-capacity', 120],
    ['permission', 120],
    ['bad-request', 120],
    ['quota', 300],
  ] as const)
    it(`${kind} blocks the zone for ${wait_s} s, and a node that it gives ends that`, () => {
      const zone = refusedBy(aZone(), kind, 'no', LIMITS, T0);
      assert.equal(zone.blocked_reason, 'no');
      assert.equal(allowance(zone, LIMITS, T0 + wait_s * 1000), 0);
      assert.equal(allowance(zone, LIMITS, T0 + wait_s * 1000 + 1), 5);
      assert.equal(allowance(gaveNode(zone, T0), LIMITS, T0), 5);
      assert.equal(rateOf(zone, LIMITS, T0), 'full', 'a refusal is no loss');
    });

  for (const [provisioning, before, after] of [
    ['node', 'node', 'node'],
    ['queued-resource', 'queued-resource', 'queued-resource'],
    ['auto', 'node', 'queued-resource'],
  ] as const)
    it(`${provisioning} asks for a ${before}, and for a ${after} where there was just no room`, () => {
      const asked = (zone: Zone, now = T0) => askOf(provisioning, zone, LIMITS, now).provisioning;
      const soldOut = refusedBy(aZone(), 'no-capacity', 'no', LIMITS, T0);
      assert.deepEqual([asked(aZone()), asked(soldOut)], [before, after]);
      assert.equal(asked(soldOut, T0 + 1_800_001), before, 'long ago is not now');
      assert.equal(asked(gaveNode(soldOut, T0)), before, 'it has given one since');
      for (const kind of ['quota', 'permission', 'bad-request', 'transient'] as const)
        assert.equal(asked(refusedBy(aZone(), kind, 'no', LIMITS, T0)), before, 'no queue helps there');
    });

  it('what waits in a queue has an end, and nothing else has', () => {
    const until = (provisioning: Provisioning) => askOf(provisioning, aZone(), LIMITS, T0).valid_until_at;
    assert.deepEqual([until('queued-resource'), until('node')], [at(LIMITS.queue_s), null]);
  });

  it('nodes that never worked may as well not have lived', () => {
    assert.deepEqual(lostNode(aZone(), null, T0).losses, [{ended_at: at(0), lived_s: 0}]);
  });

  it('a lost node is remembered with the time that it lived', () => {
    assert.deepEqual(lostNode(aZone(), at(-90), T0).losses, [{ended_at: at(0), lived_s: 90}]);
  });
});
