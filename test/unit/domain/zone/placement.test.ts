import assert from 'node:assert/strict';
import {type Limiter, OPEN} from '../../../../shared/domain/records/limiter.ts';
import type {Pool} from '../../../../shared/domain/records/pool.ts';
import type {Zone} from '../../../../shared/domain/records/zone.ts';
import {
  allowanceOf,
  askOf,
  lostNode,
  newZone,
  type PlacementLimits,
  paceOf,
} from '../../../../shared/domain/zone/placement.ts';
import {aConfig, at, T0} from '../../../world/builders.ts';

const {bundle, placement} = aConfig();
const LIMITS: PlacementLimits = placement;
const ALL = Number.POSITIVE_INFINITY;

function aZone(changes: Partial<Zone> = {}): Zone {
  return {...newZone('us-central1-a', T0), ...changes};
}

const limited = (changes: Partial<Limiter>) => aZone({limiter: {...OPEN, ...changes}});

/** Losses of nodes with these lifetimes in seconds, one a minute up to now. */
function losses(...lived: number[]): Zone['losses'] {
  return lived.map((lived_s, index) => ({ended_at: at(-60 * (lived.length - index)), lived_s}));
}

describe('the requests to a zone', () => {
  const cases: {name: string; given: Zone['losses']; then: number}[] = [
    {name: 'no loss', given: [], then: 0},
    {name: 'two short lifetimes (perhaps chance)', given: losses(10, 10), then: 0},
    {name: 'three short lifetimes', given: losses(10, 10, 299), then: ALL},
    {name: 'as many short as long lifetimes', given: losses(10, 600, 10, 600), then: 600},
    {name: 'one short lifetime of three', given: losses(10, 600, 700), then: 120},
    {name: 'one short lifetime of six', given: losses(10, 600, 600, 600, 600, 600), then: 0},
    {name: 'lifetimes that are neither short nor long', given: losses(300, 400, 599), then: 0},
  ];
  for (const {name, given, then} of cases)
    it(`are ${then} s apart after ${name}`, () => {
      assert.equal(paceOf(aZone({losses: given}), LIMITS, T0), then);
    });

  it('name the time of the next request while the zone is churning', () => {
    const zone = {...limited({asked_at: at(-50)}), losses: losses(10, 600, 700)};
    assert.equal(allowanceOf(zone, LIMITS, bundle, T0).why?.next_try_at, at(70));
  });

  it('forget losses that are older than the window', () => {
    const zone = aZone({losses: losses(10, 10, 10)});
    assert.equal(paceOf(zone, LIMITS, T0 + 1600_000), ALL);
    assert.equal(paceOf(zone, LIMITS, T0 + 1800_000), 0);
    assert.deepEqual(
      [0, 1800_000].map(ms => allowanceOf(zone, LIMITS, bundle, T0 + ms).most),
      [0, ALL],
    );
  });

  const asked = {asked_at: at(0)};
  const probing = {state: 'probing', cause: 'quota', since_at: at(-60), next_at: at(60), ...asked} as const;
  const stopped = {...probing, state: 'stopped', cause: 'permission', next_at: at(3600)} as const;
  const silence_guard = (canaries_due: number) => ({silence_guard: {canaries_due} as Zone['silence_guard']});
  const allowed: {name: string; given: Zone; after_s: number; then: number}[] = [
    {name: 'an open zone gets every node', given: aZone(), after_s: 0, then: ALL},
    {
      name: 'a churning zone gets none within its pace',
      given: {...limited(asked), losses: losses(10, 600, 700)},
      after_s: 120,
      then: 0,
    },
    {
      name: 'a churning zone gets one after its pace',
      given: {...limited(asked), losses: losses(10, 600, 700)},
      after_s: 121,
      then: 1,
    },
    {
      name: 'a churning zone gets every canary of its silence guard',
      given: {...limited(asked), losses: losses(9, 9, 9), ...silence_guard(2)},
      after_s: 0,
      then: 2,
    },
    {name: 'a probing zone gets none before its time', given: limited(probing), after_s: 60, then: 0},
    {name: 'a probing zone gets one at its time', given: limited(probing), after_s: 61, then: 1},
    {
      name: 'a probing zone gets no canary of its silence guard before its time',
      given: {...limited(probing), ...silence_guard(2)},
      after_s: 60,
      then: 0,
    },
    {
      name: 'a probing zone gets one canary of its silence guard at its time',
      given: {...limited(probing), ...silence_guard(2)},
      after_s: 61,
      then: 1,
    },
    {name: 'a stopped zone gets none within the hour', given: limited(stopped), after_s: 3600, then: 0},
    {name: 'a stopped zone gets one after an hour', given: limited(stopped), after_s: 3601, then: 1},
    {
      name: 'a stopped zone gets every canary of its silence guard',
      given: {...limited(stopped), ...silence_guard(2)},
      after_s: 0,
      then: 2,
    },
    {
      name: 'a zone that boots of another bundle stopped gets every node',
      given: limited({...stopped, cause: 'boots', bundle: 'old'}),
      after_s: 0,
      then: ALL,
    },
  ];
  for (const {name, given, after_s, then} of allowed)
    it(name, () => {
      assert.equal(allowanceOf(given, LIMITS, bundle, T0 + after_s * 1000).most, then);
    });

  for (const [provisioning, before, after] of [
    ['node', 'node', 'node'],
    ['queued-resource', 'queued-resource', 'queued-resource'],
    ['auto', 'node', 'queued-resource'],
  ] as const)
    it(`of provisioning ${provisioning} are for a ${before}, and for a ${after} while the zone is sold out`, () => {
      const kindOf = (zone: Zone) => askOf(provisioning, zone, LIMITS, T0).provisioning;
      assert.deepEqual(
        [kindOf(aZone()), kindOf(limited({...probing, cause: 'no-capacity'}))],
        [before, after],
      );
      assert.equal(kindOf(limited(probing)), before, 'the queue helps only after a stock-out');
    });

  it('expire only in the queue', () => {
    const until = (provisioning: Pool['provisioning']) =>
      askOf(provisioning, aZone(), LIMITS, T0).valid_until_at;
    assert.deepEqual([until('queued-resource'), until('node')], [at(LIMITS.queue_s), null]);
  });

  it('count a lost node with its lifetime, and a node that never worked with 0 seconds', () => {
    assert.deepEqual(lostNode(aZone(), null, T0).losses, [{ended_at: at(0), lived_s: 0}]);
    assert.deepEqual(lostNode(aZone(), at(-90), T0).losses, [{ended_at: at(0), lived_s: 90}]);
    const full = aZone({losses: losses(...Array.from({length: 50}, () => 600))});
    assert.deepEqual(lostNode(full, at(-90), T0).losses.at(-1), {ended_at: at(0), lived_s: 90});
  });
});
