import assert from 'node:assert/strict';
import {crowdedZones} from '../../../../shared/domain/fleet/slots.ts';
import {OPEN} from '../../../../shared/domain/records/limiter.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import type {Brake} from '../../../../shared/domain/records/zone.ts';
import {
  afterCreate,
  afterHellos,
  afterLostProbe,
  afterUnheard,
  decideSilence,
  shareOf,
  withHeld,
} from '../../../../shared/domain/zone/silence-brake.ts';
import {aConfig, at, aWorker, moment, T0} from '../../../support/builders.ts';

const ZONE = 'us-central1-a';
const SILENT_S = 300;
const silentWorker = (changes: Partial<Worker> = {}) =>
  aWorker({phase: 'working', born_at: at(-9000), hello_at: at(-8000), heartbeat_at: at(-400), ...changes});

/** Decides about `count` silent workers of a zone in turn. Returns how many end, and the brake. */
function decideAll(
  count: number,
  {
    brake = null,
    heard = count,
    isCrowded = false,
    isLost = false,
    seconds = 0,
  }: {
    brake?: Brake | null;
    heard?: number;
    isCrowded?: boolean;
    isLost?: boolean;
    seconds?: number;
  } = {},
): {ended: number; brake: Brake | null} {
  let [ended, current] = [0, brake];
  for (let index = 0; index < count; index++) {
    const worker = silentWorker({name: `tpu-us-central1-a-${index}`});
    const verdict = decideSilence(
      current,
      {worker, heard, isCrowded, isLost, silent_s: SILENT_S},
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
    it(`the brake of a zone with ${heard} heard workers ends ${share} at once`, () => {
      assert.equal(shareOf(heard), share);
      assert.equal(decideAll(heard + 5, {heard}).ended, share);
    });

  it('the brake gives its share once in an episode', () => {
    const {brake} = decideAll(10);
    assert.equal(decideAll(8, {brake, heard: 10, seconds: 3000}).ended, 0);
  });

  for (const {name, isCrowded, probes_due, ended} of [
    {
      name: 'gives its slot to a due probe that no other slot can take',
      isCrowded: true,
      probes_due: 1,
      ended: 1,
    },
    {
      name: 'keeps its slot where another slot can take the due probe',
      isCrowded: false,
      probes_due: 1,
      ended: 0,
    },
    {name: 'keeps its slot while no probe is due', isCrowded: true, probes_due: 0, ended: 0},
  ])
    it(`a held worker ${name}`, () => {
      const {brake} = decideAll(1);
      const after = decideAll(1, {brake: brake && {...brake, probes_due}, heard: 1, isCrowded, seconds: 60});
      assert.equal(after.ended, ended);
      assert.deepEqual([after.brake?.probes_due, after.brake?.replaced_at], [probes_due, at(60 * ended)]);
    });

  it('a zone is crowded if no slot is empty, boots, or is emptied', () => {
    const worker = (changes: Partial<Worker>) => aWorker({phase: 'idle', heartbeat_at: at(0), ...changes});
    const pool = {...aConfig({GLEANER_ZONES: ZONE, GLEANER_WORKERS_PER_ZONE: '2'}).pool, limiter: OPEN};
    const isCrowded = (...second: Worker[]) => {
      const workers = [
        worker({name: `tpu-${ZONE}-0`}),
        ...second.map(each => ({...each, name: `tpu-${ZONE}-1`})),
      ];
      return crowdedZones(pool, new Map(workers.map(each => [each.name, each]))).has(ZONE);
    };
    assert.equal(isCrowded(), false, 'empty');
    assert.equal(isCrowded(worker({phase: 'booting', heartbeat_at: null})), false, 'boots');
    assert.equal(isCrowded(worker({phase: 'deleting'})), false, 'is emptied');
    assert.equal(isCrowded(worker({})), true, 'has spoken');
    assert.equal(isCrowded(worker({phase: 'gone', held: true})), true, 'stays empty after a delete');
  });

  it('each replaced worker makes a probe due, and a create uses the probe', () => {
    const {brake} = decideAll(10);
    assert.equal(brake?.probes_due, 2);
    assert.equal(brake && afterCreate(afterCreate(afterCreate(brake))).probes_due, 0);
  });

  it('the first word of a probe ends every silent worker', () => {
    const {brake} = decideAll(10);
    const probe = aWorker({born_at: at(10), hello_at: at(200), heartbeat_at: at(200)});
    const holding = brake && withHeld(brake, [silentWorker({usd_per_hour: 2})]);
    const after = holding && afterHellos(holding, [probe, silentWorker()], moment(T0 + 351_000));
    assert.deepEqual([after?.held, after?.held_usd_per_hour], [1, 2], 'they are held until they end');
    assert.equal(decideAll(8, {brake: after, heard: 10, seconds: 352}).ended, 8);
  });

  it('the first word of a probe counts after PROOF_S, when other workers had time to speak', () => {
    const {brake} = decideAll(10);
    const probe = aWorker({born_at: at(10), hello_at: at(200), heartbeat_at: at(200)});
    const after = brake && afterHellos(brake, [probe], moment(T0 + 349_000));
    assert.deepEqual(after, {...brake, hello_at: at(200)});
  });

  it('the first word of a probe counts also if the probe is gone by then', () => {
    const {brake} = decideAll(10);
    const probe = aWorker({born_at: at(10), hello_at: at(200), heartbeat_at: at(200)});
    const another = aWorker({born_at: at(10), hello_at: at(240), heartbeat_at: at(240)});
    const heard = brake && afterHellos(brake, [another, probe], moment(T0 + 260_000));
    assert.equal(heard && afterHellos(heard, [], moment(T0 + 349_000)), heard);
    const after = heard && afterHellos(heard, [another], moment(T0 + 351_000));
    assert.deepEqual([after?.spoke_at, after?.hello_at], [at(200), at(240)]);
    assert.equal(decideAll(8, {brake: after, heard: 10, seconds: 352}).ended, 8);
  });

  it('a worker that spoke shortly before the first word of a probe is judged within a new share', () => {
    const {brake} = decideAll(10);
    const probe = aWorker({born_at: at(10), hello_at: at(200), heartbeat_at: at(200)});
    const after = brake && afterHellos(brake, [probe], moment(T0 + 351_000));
    const late = silentWorker({heartbeat_at: at(150)});
    const silent = {worker: late, heard: 10, isCrowded: false, isLost: false, silent_s: SILENT_S};
    let current = after;
    const ends = [1, 2, 3].map(() => {
      const {verdict, brake} = decideSilence(current, silent, moment(T0 + 600_000));
      current = brake;
      return verdict;
    });
    assert.deepEqual(ends, ['ends', 'ends', 'held'], 'a new share');
  });

  it('a first word from before the last replacement renews no share, and the probes stay due', () => {
    const {brake} = decideAll(10, {seconds: 300});
    const another = aWorker({born_at: at(10), hello_at: at(200), heartbeat_at: at(200)});
    const episode = brake && {...brake, since_at: at(100)};
    const after = episode && afterHellos(episode, [another], moment(T0 + 351_000));
    assert.deepEqual([after?.spoke_at, after?.probes_due], [at(200), 2]);
    const late = silentWorker({heartbeat_at: at(250)});
    const silent = {worker: late, heard: 10, isCrowded: false, isLost: false, silent_s: SILENT_S};
    assert.equal(decideSilence(after, silent, moment(T0 + 600_000)).verdict, 'held');
  });

  it('a first word from before the episode is no verdict', () => {
    const {brake} = decideAll(10);
    const old = aWorker({hello_at: at(-60), heartbeat_at: at(100)});
    assert.equal(brake && afterHellos(brake, [old], moment(T0 + 100_000)), brake);
  });

  it('two bad verdicts let one further worker an hour end', () => {
    const {brake} = decideAll(10);
    const probe = aWorker({born_at: at(10), is_probe: true});
    const once = brake && afterUnheard(brake, probe);
    assert.equal(decideAll(8, {brake: once, heard: 10, seconds: 900}).ended, 0, 'not after one');
    assert.equal(once?.probes_due, 3, 'another probe is due');
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
    it(`an unheard node ${which} is no verdict`, () => {
      const {brake} = decideAll(10);
      assert.equal(brake && afterUnheard(brake, aWorker(changes)), brake);
    });

  it('an outage of worker-api does not count as silence before a first word', () => {
    const {brake} = decideAll(10);
    const after = brake && {...brake, spoke_at: at(200)};
    const outage = {from_at: at(-390), to_at: at(190)};
    const served = {...moment(T0 + 600_000).served, gaps: [outage]};
    const silent = {worker: silentWorker(), heard: 10, isCrowded: false, isLost: false, silent_s: SILENT_S};
    assert.equal(decideSilence(after, silent, {now: T0 + 600_000, served}).verdict, 'held');
    assert.equal(decideSilence(after, silent, moment(T0 + 600_000)).verdict, 'judged');
  });

  describe('a node that was refused or taken before its first word', () => {
    const {brake} = decideAll(10);
    const probed = brake && afterCreate(afterCreate(brake));
    for (const {name, changes, due} of [
      {name: 'a probe', changes: {born_at: at(20), is_probe: true}, due: 1},
      {name: 'a probe of an earlier episode', changes: {born_at: at(-20), is_probe: true}, due: 0},
      {
        name: 'a probe whose host spoke',
        changes: {born_at: at(20), is_probe: true, hello_at: at(30)},
        due: 0,
      },
      {name: 'any other node', changes: {born_at: at(30)}, due: 0},
    ])
      it(`gives back ${due} probe, where it was ${name}`, () => {
        assert.equal(probed && afterLostProbe(probed, aWorker(changes)).probes_due, due);
      });
  });

  it('a worker without a word or a shard for six hours ends in spite of the brake', () => {
    const {brake} = decideAll(10);
    assert.equal(decideAll(8, {brake, heard: 10, isLost: true}).ended, 8);
  });

  it('the brake is off ten minutes after its last silent worker', () => {
    const {brake} = decideAll(10);
    assert.notEqual(brake && afterHellos(brake, [], moment(T0 + 600_000)), null);
    assert.equal(brake && afterHellos(brake, [], moment(T0 + 600_001)), null);
    const held = decideAll(1, {brake, heard: 10, seconds: 599}).brake;
    assert.notEqual(held && afterHellos(held, [], moment(T0 + 900_000)), null, 'holding keeps it on');
  });

  it('the brake records its held workers and their dollars an hour', () => {
    const {brake} = decideAll(10);
    assert.ok(brake);
    const held = [silentWorker({usd_per_hour: 1.5}), silentWorker({usd_per_hour: 0.25})];
    assert.deepEqual([withHeld(brake, held).held, withHeld(brake, held).held_usd_per_hour], [2, 1.75]);
    const unknown = [...held, silentWorker({usd_per_hour: null})];
    assert.deepEqual([withHeld(brake, unknown).held, withHeld(brake, unknown).held_usd_per_hour], [3, null]);
  });
});
