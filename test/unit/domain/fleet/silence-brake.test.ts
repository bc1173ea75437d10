import assert from 'node:assert/strict';
import {NO_BOOTS} from '../../../../shared/domain/fleet/breakers.ts';
import {
  afterCreate,
  afterHellos,
  afterLostBoot,
  afterUnheard,
  type Brake,
  decideSilence,
  shareOf,
  withHeld,
} from '../../../../shared/domain/fleet/silence-brake.ts';
import type {Worker} from '../../../../shared/domain/worker/worker.ts';
import {at, aWorker, moment, T0} from '../../../support/builders.ts';

const SILENT_S = 300;
const silentWorker = (changes: Partial<Worker> = {}) =>
  aWorker({phase: 'working', born_at: at(-9000), hello_at: at(-8000), heartbeat_at: at(-400), ...changes});

/** Decides about so many silent workers of a zone one after the other; answers which end, and the brake. */
function decideAll(
  count: number,
  {
    brake = null,
    heard = count,
    isLost = false,
    seconds = 0,
  }: {
    brake?: Brake | null;
    heard?: number;
    isLost?: boolean;
    seconds?: number;
  } = {},
): {ended: number; brake: Brake | null} {
  let [ended, current] = [0, brake];
  for (let index = 0; index < count; index++) {
    const worker = silentWorker({name: `tpu-us-central1-a-${index}`});
    const verdict = decideSilence(
      current,
      {worker, heard, isLost, silent_s: SILENT_S},
      moment(T0 + seconds * 1000),
    );
    if (verdict.verdict !== 'held') ended += 1;
    current = verdict.brake;
  }
  return {ended, brake: current};
}

describe('the silence brake', () => {
  for (const [heard, share] of [
    [0, 1],
    [1, 1],
    [9, 1],
    [10, 2],
    [1000, 200],
  ] as const)
    it(`of ${heard} workers ends ${share} at once`, () => {
      assert.equal(shareOf(heard), share);
      assert.equal(decideAll(heard + 5, {heard}).ended, share);
    });

  it('gives its share once', () => {
    const {brake} = decideAll(10);
    assert.equal(decideAll(8, {brake, heard: 10, seconds: 3000}).ended, 0);
  });

  it('holds a probe due for each worker that it lets end, and a create uses it up', () => {
    const {brake} = decideAll(10);
    assert.equal(brake?.probes_due, 2);
    assert.equal(brake && afterCreate(afterCreate(afterCreate(brake))).probes_due, 0);
  });

  it('lets every silent worker end once a worker has spoken for the first time', () => {
    const {brake} = decideAll(10);
    const probe = aWorker({born_at: at(10), hello_at: at(200), heartbeat_at: at(200)});
    const after = brake && afterHellos(brake, [probe, silentWorker()], moment(T0 + 351_000));
    assert.equal(decideAll(8, {brake: after, heard: 10, seconds: 352}).ended, 8);
  });

  it('gives the other workers of the zone two heartbeats to speak before the first word of a probe counts', () => {
    const {brake} = decideAll(10);
    const probe = aWorker({born_at: at(10), hello_at: at(200), heartbeat_at: at(200)});
    assert.equal(brake && afterHellos(brake, [probe], moment(T0 + 349_000)), brake);
  });

  it('judges workers anew that spoke shortly before that first word', () => {
    const {brake} = decideAll(10);
    const probe = aWorker({born_at: at(10), hello_at: at(200), heartbeat_at: at(200)});
    const after = brake && afterHellos(brake, [probe], moment(T0 + 351_000));
    const late = silentWorker({heartbeat_at: at(150)});
    const silent = {worker: late, heard: 10, isLost: false, silent_s: SILENT_S};
    let current = after;
    const ends = [1, 2, 3].map(() => {
      const {verdict, brake} = decideSilence(current, silent, moment(T0 + 600_000));
      current = brake;
      return verdict;
    });
    assert.deepEqual(ends, ['ends', 'ends', 'held'], 'a new share');
  });

  it('takes no first word from before the episode for a verdict', () => {
    const {brake} = decideAll(10);
    const old = aWorker({hello_at: at(-60), heartbeat_at: at(100)});
    assert.equal(brake && afterHellos(brake, [old], moment(T0 + 100_000)), brake);
  });

  it('lets one more worker an hour end after two bad verdicts', () => {
    const {brake} = decideAll(10);
    const probe = aWorker({born_at: at(10), is_probe: true});
    const once = brake && afterUnheard(brake, probe);
    assert.equal(decideAll(8, {brake: once, heard: 10, seconds: 900}).ended, 0, 'not after one');
    assert.equal(once?.probes_due, 3, 'and that probe is tried again');
    const twice = once && afterUnheard(once, probe);
    const first = decideAll(8, {brake: twice, heard: 10, seconds: 1000});
    assert.equal(first.ended, 1);
    assert.equal(decideAll(7, {brake: first.brake, heard: 10, seconds: 4600}).ended, 0);
    assert.equal(decideAll(7, {brake: first.brake, heard: 10, seconds: 4601}).ended, 1);
  });

  for (const [which, changes] of [
    ['of an earlier episode', {born_at: at(-10), is_probe: true}],
    ['that is no probe', {born_at: at(10)}],
  ] as const)
    it(`hears no verdict from a node ${which}`, () => {
      const {brake} = decideAll(10);
      assert.equal(brake && afterUnheard(brake, aWorker(changes)), brake);
    });

  it('counts no outage of worker-api in the silence that a first word judges', () => {
    const {brake} = decideAll(10);
    const after = brake && {...brake, spoke_at: at(200)};
    const outage = {from_at: at(-390), to_at: at(190)};
    const served = {...moment(T0 + 600_000).served, gaps: [outage]};
    const silent = {worker: silentWorker(), heard: 10, isLost: false, silent_s: SILENT_S};
    assert.equal(decideSilence(after, silent, {now: T0 + 600_000, served}).verdict, 'held');
    assert.equal(decideSilence(after, silent, moment(T0 + 600_000)).verdict, 'judged');
  });

  describe('a node that ended before it could speak', () => {
    const stopped = {...NO_BOOTS, unheard: 5, stopped_at: at(-9000), tried_at: at(10), bundle: 'b'};
    const {brake} = decideAll(10);
    const zone = {brake: brake && afterCreate(afterCreate(brake)), boots: stopped};
    for (const {name, changes, due, tried_at} of [
      {name: 'a probe', changes: {born_at: at(20), is_probe: true}, due: 1, tried_at: at(10)},
      {name: 'a probe of before', changes: {born_at: at(-20), is_probe: true}, due: 0, tried_at: at(10)},
      {name: 'the try of a stop', changes: {born_at: at(10)}, due: 0, tried_at: null},
      {name: 'any other node', changes: {born_at: at(30)}, due: 0, tried_at: at(10)},
    ])
      it(`gives back ${due} probe and ${tried_at ? 'no try' : 'a try'}: ${name}`, () => {
        const after = afterLostBoot(zone, {boots: stopped}, aWorker(changes));
        const {brake, boots} = after.zone;
        assert.deepEqual(
          [brake?.probes_due, boots.tried_at, after.pool.boots.tried_at],
          [due, tried_at, tried_at],
        );
      });
  });

  it('lets a worker end that is silent and stored nothing for six hours', () => {
    const {brake} = decideAll(10);
    assert.equal(decideAll(8, {brake, heard: 10, isLost: true}).ended, 8);
  });

  it('is off after ten minutes in which it held none', () => {
    const {brake} = decideAll(10);
    assert.notEqual(brake && afterHellos(brake, [], moment(T0 + 600_000)), null);
    assert.equal(brake && afterHellos(brake, [], moment(T0 + 600_001)), null);
    const held = decideAll(1, {brake, heard: 10, seconds: 599}).brake;
    assert.notEqual(held && afterHellos(held, [], moment(T0 + 900_000)), null, 'holding keeps it on');
  });

  it('says how many workers it holds and what their nodes cost an hour', () => {
    const {brake} = decideAll(10);
    assert.ok(brake);
    const held = [silentWorker({usd_per_hour: 1.5}), silentWorker({usd_per_hour: 0.25})];
    assert.deepEqual([withHeld(brake, held).held, withHeld(brake, held).held_usd_per_hour], [2, 1.75]);
    const unknown = [...held, silentWorker({usd_per_hour: null})];
    assert.deepEqual([withHeld(brake, unknown).held, withHeld(brake, unknown).held_usd_per_hour], [3, null]);
  });
});
