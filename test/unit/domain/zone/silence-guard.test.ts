import assert from 'node:assert/strict';
import {fullZones} from '../../../../shared/domain/fleet/slots.ts';
import {OPEN} from '../../../../shared/domain/records/limiter.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import type {SilenceGuard} from '../../../../shared/domain/records/zone.ts';
import {
  afterCreate,
  afterHellos,
  afterLostCanary,
  afterUnheard,
  decideSilence,
  shareOf,
  withHeld,
} from '../../../../shared/domain/zone/silence-guard.ts';
import {aConfig, at, aWorker, moment, T0} from '../../../world/builders.ts';

const ZONE = 'us-central1-a';
const SILENT_S = 300;
const silentWorker = (changes: Partial<Worker> = {}) =>
  aWorker({phase: 'working', born_at: at(-9000), hello_at: at(-8000), heartbeat_at: at(-400), ...changes});

/** Decides about `count` silent workers of a zone in turn. Returns how many end, and the silence guard. */
function decideAll(
  count: number,
  {
    silence_guard = null,
    speakers = count,
    isCrowded = false,
    isLost = false,
    seconds = 0,
  }: {
    silence_guard?: SilenceGuard | null;
    speakers?: number;
    isCrowded?: boolean;
    isLost?: boolean;
    seconds?: number;
  } = {},
): {ended: number; silence_guard: SilenceGuard | null} {
  let [ended, current] = [0, silence_guard];
  for (let index = 0; index < count; index++) {
    const worker = silentWorker({name: `tpu-us-central1-a-${index}`});
    const verdict = decideSilence(
      current,
      {worker, speakers, isCrowded, isLost, silent_s: SILENT_S},
      moment(T0 + seconds * 1000),
    );
    if (verdict.verdict !== 'held') ended += 1;
    current = verdict.silence_guard;
  }
  return {ended, silence_guard: current};
}

describe('the silence guard', () => {
  for (const [speakers, share] of [
    [0, 1],
    [1, 1],
    [9, 1],
    [10, 2],
    [1000, 200],
  ] as const)
    it(`the silence guard of a zone in which ${speakers} workers have sent heartbeats ends ${share} at once`, () => {
      assert.equal(shareOf(speakers), share);
      assert.equal(decideAll(speakers + 5, {speakers}).ended, share);
    });

  it('the silence guard gives its share once in an episode', () => {
    const {silence_guard} = decideAll(10);
    assert.equal(decideAll(8, {silence_guard, speakers: 10, seconds: 3000}).ended, 0);
  });

  for (const {name, isCrowded, canaries_due, ended} of [
    {
      name: 'gives its slot to a due canary that no other slot can take',
      isCrowded: true,
      canaries_due: 1,
      ended: 1,
    },
    {
      name: 'keeps its slot where another slot can take the due canary',
      isCrowded: false,
      canaries_due: 1,
      ended: 0,
    },
    {name: 'keeps its slot while no canary is due', isCrowded: true, canaries_due: 0, ended: 0},
  ])
    it(`a held worker ${name}`, () => {
      const {silence_guard} = decideAll(1);
      const after = decideAll(1, {
        silence_guard: silence_guard && {...silence_guard, canaries_due},
        speakers: 1,
        isCrowded,
        seconds: 60,
      });
      assert.equal(after.ended, ended);
      assert.deepEqual(
        [after.silence_guard?.canaries_due, after.silence_guard?.replaced_at],
        [canaries_due, at(60 * ended)],
      );
    });

  it('a zone is crowded if no slot is empty, boots, or is emptied', () => {
    const worker = (changes: Partial<Worker>) => aWorker({phase: 'idle', heartbeat_at: at(0), ...changes});
    const pool = {...aConfig({GLEANER_ZONES: ZONE, GLEANER_WORKERS_PER_ZONE: '2'}).pool, limiter: OPEN};
    const isCrowded = (...second: Worker[]) => {
      const workers = [
        worker({name: `tpu-${ZONE}-0`}),
        ...second.map(each => ({...each, name: `tpu-${ZONE}-1`})),
      ];
      return fullZones(pool, new Map(workers.map(each => [each.name, each]))).has(ZONE);
    };
    assert.equal(isCrowded(), false, 'empty');
    assert.equal(isCrowded(worker({phase: 'booting', heartbeat_at: null})), false, 'boots');
    assert.equal(isCrowded(worker({phase: 'deleting'})), false, 'is emptied');
    assert.equal(isCrowded(worker({})), true, 'has spoken');
    assert.equal(isCrowded(worker({phase: 'gone', held: true})), true, 'stays empty after a delete');
  });

  it('each replaced worker makes a canary due, and a create uses the canary', () => {
    const {silence_guard} = decideAll(10);
    assert.equal(silence_guard?.canaries_due, 2);
    assert.equal(silence_guard && afterCreate(afterCreate(afterCreate(silence_guard))).canaries_due, 0);
  });

  it('the first heartbeat of a canary ends every silent worker', () => {
    const {silence_guard} = decideAll(10);
    const canary = aWorker({born_at: at(10), hello_at: at(200), heartbeat_at: at(200)});
    const holding = silence_guard && withHeld(silence_guard, [silentWorker({usd_per_hour: 2})]);
    const after = holding && afterHellos(holding, [canary, silentWorker()], moment(T0 + 351_000));
    assert.deepEqual([after?.held, after?.held_usd_per_hour], [1, 2], 'they are held until they end');
    assert.equal(decideAll(8, {silence_guard: after, speakers: 10, seconds: 352}).ended, 8);
  });

  it('the first heartbeat of a canary counts after PROOF_S, when other workers had time to send theirs', () => {
    const {silence_guard} = decideAll(10);
    const canary = aWorker({born_at: at(10), hello_at: at(200), heartbeat_at: at(200)});
    const after = silence_guard && afterHellos(silence_guard, [canary], moment(T0 + 349_000));
    assert.deepEqual(after, {...silence_guard, hello_at: at(200)});
  });

  it('the first heartbeat of a canary counts even if the canary is gone by then', () => {
    const {silence_guard} = decideAll(10);
    const canary = aWorker({born_at: at(10), hello_at: at(200), heartbeat_at: at(200)});
    const another = aWorker({born_at: at(10), hello_at: at(240), heartbeat_at: at(240)});
    const heard = silence_guard && afterHellos(silence_guard, [another, canary], moment(T0 + 260_000));
    assert.equal(heard && afterHellos(heard, [], moment(T0 + 349_000)), heard);
    const after = heard && afterHellos(heard, [another], moment(T0 + 351_000));
    assert.deepEqual([after?.spoke_at, after?.hello_at], [at(200), at(240)]);
    assert.equal(decideAll(8, {silence_guard: after, speakers: 10, seconds: 352}).ended, 8);
  });

  it('a worker whose heartbeat came shortly before the first one of a canary is judged within a new share', () => {
    const {silence_guard} = decideAll(10);
    const canary = aWorker({born_at: at(10), hello_at: at(200), heartbeat_at: at(200)});
    const after = silence_guard && afterHellos(silence_guard, [canary], moment(T0 + 351_000));
    const late = silentWorker({heartbeat_at: at(150)});
    const silent = {worker: late, speakers: 10, isCrowded: false, isLost: false, silent_s: SILENT_S};
    let current = after;
    const ends = [1, 2, 3].map(() => {
      const {verdict, silence_guard} = decideSilence(current, silent, moment(T0 + 600_000));
      current = silence_guard;
      return verdict;
    });
    assert.deepEqual(ends, ['ends', 'ends', 'held'], 'a new share');
  });

  it('a first heartbeat from before the last replacement renews no share, and the canaries stay due', () => {
    const {silence_guard} = decideAll(10, {seconds: 300});
    const another = aWorker({born_at: at(10), hello_at: at(200), heartbeat_at: at(200)});
    const episode = silence_guard && {...silence_guard, since_at: at(100)};
    const after = episode && afterHellos(episode, [another], moment(T0 + 351_000));
    assert.deepEqual([after?.spoke_at, after?.canaries_due], [at(200), 2]);
    const late = silentWorker({heartbeat_at: at(250)});
    const silent = {worker: late, speakers: 10, isCrowded: false, isLost: false, silent_s: SILENT_S};
    assert.equal(decideSilence(after, silent, moment(T0 + 600_000)).verdict, 'held');
  });

  it('a first heartbeat from before the episode is no verdict', () => {
    const {silence_guard} = decideAll(10);
    const old = aWorker({hello_at: at(-60), heartbeat_at: at(100)});
    assert.equal(silence_guard && afterHellos(silence_guard, [old], moment(T0 + 100_000)), silence_guard);
  });

  it('two bad verdicts let one further worker an hour end', () => {
    const {silence_guard} = decideAll(10);
    const canary = aWorker({born_at: at(10), is_canary: true});
    const once = silence_guard && afterUnheard(silence_guard, canary);
    assert.equal(decideAll(8, {silence_guard: once, speakers: 10, seconds: 900}).ended, 0, 'not after one');
    assert.equal(once?.canaries_due, 3, 'another canary is due');
    const twice = once && afterUnheard(once, canary);
    const first = decideAll(8, {silence_guard: twice, speakers: 10, seconds: 1000});
    assert.equal(first.ended, 1);
    assert.equal(decideAll(7, {silence_guard: first.silence_guard, speakers: 10, seconds: 4600}).ended, 0);
    assert.equal(decideAll(7, {silence_guard: first.silence_guard, speakers: 10, seconds: 4601}).ended, 1);
  });

  for (const [which, changes] of [
    ['of an earlier episode', {born_at: at(-10), is_canary: true}],
    ['that is no canary', {born_at: at(10)}],
  ] as const)
    it(`a silent node ${which} is no verdict`, () => {
      const {silence_guard} = decideAll(10);
      assert.equal(silence_guard && afterUnheard(silence_guard, aWorker(changes)), silence_guard);
    });

  it('an outage of worker-api does not count as silence before a first heartbeat', () => {
    const {silence_guard} = decideAll(10);
    const after = silence_guard && {...silence_guard, spoke_at: at(200)};
    const outage = {from_at: at(-390), to_at: at(190)};
    const served = {...moment(T0 + 600_000).servedTime, gaps: [outage]};
    const silent = {
      worker: silentWorker(),
      speakers: 10,
      isCrowded: false,
      isLost: false,
      silent_s: SILENT_S,
    };
    assert.equal(decideSilence(after, silent, {now: T0 + 600_000, servedTime: served}).verdict, 'held');
    assert.equal(decideSilence(after, silent, moment(T0 + 600_000)).verdict, 'judged');
  });

  describe('a node that was refused or taken before its first heartbeat', () => {
    const {silence_guard} = decideAll(10);
    const covered = silence_guard && afterCreate(afterCreate(silence_guard));
    for (const {name, changes, due} of [
      {name: 'a canary', changes: {born_at: at(20), is_canary: true}, due: 1},
      {name: 'a canary of an earlier episode', changes: {born_at: at(-20), is_canary: true}, due: 0},
      {
        name: 'a canary whose host sent a heartbeat',
        changes: {born_at: at(20), is_canary: true, hello_at: at(30)},
        due: 0,
      },
      {name: 'any other node', changes: {born_at: at(30)}, due: 0},
    ])
      it(`gives back ${due} canary, where it was ${name}`, () => {
        assert.equal(covered && afterLostCanary(covered, aWorker(changes)).canaries_due, due);
      });
  });

  it('a worker without a heartbeat or a shard for six hours ends in spite of the silence guard', () => {
    const {silence_guard} = decideAll(10);
    assert.equal(decideAll(8, {silence_guard, speakers: 10, isLost: true}).ended, 8);
  });

  it('the silence guard is off ten minutes after its last silent worker', () => {
    const {silence_guard} = decideAll(10);
    assert.notEqual(silence_guard && afterHellos(silence_guard, [], moment(T0 + 600_000)), null);
    assert.equal(silence_guard && afterHellos(silence_guard, [], moment(T0 + 600_001)), null);
    const held = decideAll(1, {silence_guard, speakers: 10, seconds: 599}).silence_guard;
    assert.notEqual(held && afterHellos(held, [], moment(T0 + 900_000)), null, 'holding keeps it on');
  });

  it('the silence guard records its held workers and their dollars an hour', () => {
    const {silence_guard} = decideAll(10);
    assert.ok(silence_guard);
    const held = [silentWorker({usd_per_hour: 1.5}), silentWorker({usd_per_hour: 0.25})];
    assert.deepEqual(
      [withHeld(silence_guard, held).held, withHeld(silence_guard, held).held_usd_per_hour],
      [2, 1.75],
    );
    const unknown = [...held, silentWorker({usd_per_hour: null})];
    assert.deepEqual(
      [withHeld(silence_guard, unknown).held, withHeld(silence_guard, unknown).held_usd_per_hour],
      [3, null],
    );
  });
});
