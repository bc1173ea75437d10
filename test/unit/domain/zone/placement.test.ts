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
} from '../../../../shared/domain/zone/placement.ts';
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

/** Losses of nodes with these lifetimes in seconds, one a minute up to now. */
function losses(...lived: number[]): Zone['losses'] {
  return lived.map((lived_s, index) => ({ended_at: at(-60 * (lived.length - index)), lived_s}));
}

describe('requests to a zone', () => {
  const cases: {name: string; given: Zone['losses']; then: string}[] = [
    {name: 'no loss', given: [], then: 'full'},
    {name: 'two short lifetimes (perhaps chance)', given: losses(10, 10), then: 'full'},
    {name: 'three short lifetimes', given: losses(10, 10, 299), then: 'stopped'},
    {name: 'as many short as long lifetimes', given: losses(10, 600, 10, 600), then: 'tenth'},
    {name: 'one short lifetime of three', given: losses(10, 600, 700), then: 'half'},
    {name: 'one short lifetime of six', given: losses(10, 600, 600, 600, 600, 600), then: 'full'},
    {name: 'lifetimes that are neither short nor long', given: losses(300, 400, 599), then: 'full'},
  ];
  for (const {name, given, then} of cases)
    it(`a zone with ${name} has rate ${then}`, () => {
      assert.equal(rateOf(aZone({losses: given}), LIMITS, T0), then);
    });

  it('losses older than the window are forgotten', () => {
    const zone = aZone({losses: losses(10, 10, 10)});
    assert.equal(rateOf(zone, LIMITS, T0 + 1600_000), 'stopped');
    assert.equal(rateOf(zone, LIMITS, T0 + 1800_000), 'full');
  });

  it('an unknown zone allows a full hour of creates', () => {
    assert.equal(allowance(undefined, LIMITS, T0), 5);
  });

  it('creates of the last hour reduce the allowance of a zone', () => {
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
    it(`a churning zone is asked for one node every ${every_s} s`, () => {
      const zone = askedFor(aZone({losses: given}), T0);
      assert.equal(allowance(zone, LIMITS, T0 + every_s * 1000), 0);
      assert.equal(allowance(zone, LIMITS, T0 + every_s * 1000 + 1), 1);
    });

  it('a zone with only short lifetimes is not asked until its losses are old', () => {
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
    it(`a refusal of kind ${kind} blocks the zone for ${wait_s} s, or until it gives a node`, () => {
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
    it(`provisioning ${provisioning} requests a ${before}, and a ${after} after a recent stock-out`, () => {
      const asked = (zone: Zone, now = T0) => askOf(provisioning, zone, LIMITS, now).provisioning;
      const soldOut = refusedBy(aZone(), 'no-capacity', 'no', LIMITS, T0);
      assert.deepEqual([asked(aZone()), asked(soldOut)], [before, after]);
      assert.equal(asked(soldOut, T0 + 1_800_001), before, 'an old stock-out does not count');
      assert.equal(asked(gaveNode(soldOut, T0)), before, 'a given node ends the stock-out');
      for (const kind of ['quota', 'permission', 'bad-request', 'transient'] as const)
        assert.equal(
          asked(refusedBy(aZone(), kind, 'no', LIMITS, T0)),
          before,
          'the queue helps only after a stock-out',
        );
    });

  it('only a request in the queue expires', () => {
    const until = (provisioning: Provisioning) => askOf(provisioning, aZone(), LIMITS, T0).valid_until_at;
    assert.deepEqual([until('queued-resource'), until('node')], [at(LIMITS.queue_s), null]);
  });

  it('a lost node that never worked has lived 0 seconds', () => {
    assert.deepEqual(lostNode(aZone(), null, T0).losses, [{ended_at: at(0), lived_s: 0}]);
  });

  it('a lost node is recorded with its lifetime', () => {
    assert.deepEqual(lostNode(aZone(), at(-90), T0).losses, [{ended_at: at(0), lived_s: 90}]);
  });
});
