import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  slotsFor,
  slotsOf,
  streamFor,
  type WantedOptions,
  wantedSlots,
} from '../../../../shared/domain/fleet/slots.ts';
import {constraint} from '../../../../shared/domain/records/constraint.ts';
import {NEW_POOL, type Pool} from '../../../../shared/domain/records/pool.ts';
import type {Phase, Worker} from '../../../../shared/domain/records/worker.ts';
import {at, aWorker, FREE, T0} from '../../../world/builders.ts';

const POOL: Pool = {
  ...NEW_POOL,
  pool: 'tpu',
  ...{accelerator: 'v5litepod-1', runtime_version: 'v2', spot: true},
  zones: ['us-central1-a', 'europe-west4-b'],
  workers_per_zone: 2,
};
const [A0, A1, B0, B1] = [
  'tpu-us-central1-a-0',
  'tpu-us-central1-a-1',
  'tpu-europe-west4-b-0',
  'tpu-europe-west4-b-1',
] as const;
const PHASES: Phase[] = ['creating', 'booting', 'idle', 'working', 'draining', 'deleting', 'gone'];

function wanted(workers: Worker[], unfinished: number, options: Partial<WantedOptions> = {}): string[] {
  const known = new Map(workers.map(each => [each.name, each]));
  return [...wantedSlots(POOL, known, unfinished, T0, {...FREE, ...options}).wanted].sort();
}

const SOLD_OUT = constraint('zone', 'us-central1-a');
const allow = (most: Record<string, number>) =>
  new Map(Object.entries(most).map(([zone, most]) => [zone, {most, why: SOLD_OUT}]));

const worker = (name: string, phase: Phase, changes: Partial<Worker> = {}) =>
  aWorker({name, phase, work: phase === 'working' ? 'my-run/007' : null, ...changes});

const cases: {name: string; given: Worker[]; unfinished?: number; then: string[]}[] = [
  {name: 'a pool without work wants no slot', given: [worker(A0, 'working')], unfinished: 0, then: []},
  {name: 'a pool fills its slots zone by zone', given: [], unfinished: 3, then: [A0, A1, B0]},
  {
    name: 'a pool with more work than slots wants every slot',
    given: [],
    unfinished: 99,
    then: [A0, A1, B0, B1],
  },
  {
    name: 'a working worker is kept before an idle worker',
    given: [worker(A0, 'idle'), worker(B1, 'working')],
    then: [B1],
  },
  {
    name: 'an idle worker is kept before a booting worker',
    given: [worker(A0, 'booting'), worker(B1, 'idle')],
    then: [B1],
  },
  {
    name: 'an idle worker is kept before a silent worker without a lease',
    given: [worker(A0, 'working', {work: null}), worker(B1, 'idle')],
    then: [B1],
  },
  {
    name: 'a booting worker is kept before a worker in creation',
    given: [worker(A0, 'creating'), worker(B1, 'booting')],
    then: [B1],
  },
  {name: 'a worker in creation is kept before an empty slot', given: [worker(B1, 'creating')], then: [B1]},
  {name: 'a slot in deletion is wanted again', given: [worker(A0, 'deleting')], then: [A0]},
  {
    name: 'a slot with an endless delete gives way to an empty slot',
    given: [worker(A0, 'deleting', {phase_since_at: at(-3600)})],
    then: [A1],
  },
  {
    name: 'a slot with an endless delete is wanted where every slot is',
    given: [worker(A0, 'deleting', {phase_since_at: at(-3600)})],
    unfinished: 4,
    then: [A0, A1, B0, B1],
  },
  {name: 'a draining worker comes last', given: [worker(A0, 'draining')], unfinished: 3, then: [A1, B0, B1]},
  {
    name: 'a refused slot is skipped while its block lasts',
    given: [worker(A0, 'gone', {blocked_until_at: at(300)})],
    unfinished: 2,
    then: [A1, B0],
  },
  {
    name: 'a refused slot is wanted again after its block',
    given: [worker(A0, 'gone', {blocked_until_at: at(-1)})],
    then: [A0],
  },
  {
    name: 'a slot that the pool no longer has is not wanted',
    given: [worker('tpu-us-east1-c-0', 'working')],
    then: [A0],
  },
];

describe('wanted slots in zones without an allowance', () => {
  const names = (workers: Worker[], unfinished: number, allowances: Record<string, number>) =>
    wanted(workers, unfinished, {allowances: allow(allowances)});

  it('a zone without an allowance keeps its nodes, and new nodes come from the next zone', () => {
    assert.deepEqual(names([], 2, {'us-central1-a': 0}), [B0, B1].sort());
    assert.deepEqual(names([], 2, {'us-central1-a': 1}), [A0, B0].sort());
    assert.deepEqual(names([worker(A1, 'working')], 2, {'us-central1-a': 0}), [A1, B0].sort());
    assert.deepEqual(names([], 9, {'us-central1-a': 0, 'europe-west4-b': 1}), [B0]);
  });
});

describe('wanted slots in zones that are not open', () => {
  const limited = new Set(['us-central1-a']);
  const asked = (seconds: number, changes: Partial<Worker> = {}) =>
    worker(A0, 'creating', {asked_at: at(-seconds), ...changes});

  it('come after the empty slots of open zones', () => {
    assert.deepEqual(wanted([], 2, {limited}), [B0, B1].sort());
    assert.deepEqual(wanted([], 3, {limited}), [A0, B0, B1].sort());
  });

  it('give their work to an open zone where no list shows the requested node after 90 s', () => {
    assert.deepEqual(wanted([asked(90)], 1, {limited}), [A0]);
    assert.deepEqual(wanted([asked(91)], 1, {limited}), [B0]);
    assert.deepEqual(wanted([asked(91, {provider_state: 'CREATING'})], 1, {limited}), [A0]);
    assert.deepEqual(wanted([asked(91, {queue_state: 'ACCEPTED'})], 1, {limited}), [A0]);
    assert.deepEqual(
      wanted([asked(91)], 3, {limited}),
      [A0, B0, B1].sort(),
      'they keep their work where no other slot is',
    );
  });
});

describe('a fixed assignment', () => {
  const run = (stream_offset: number) => ({affinity: 'fixed' as const, stream_offset});

  it('the k-th slot over all zones has stream k + stream_offset, as the seeds number them', () => {
    assert.deepEqual(
      [0, 1, 2, 3, 4].map(stream => slotsFor(POOL, run(0), stream)),
      [[A0], [A1], [B0], [B1], []],
    );
    assert.deepEqual(
      [7, 8, 11, 12].map(stream => slotsFor(POOL, run(8), stream)),
      [[], [A0], [B1], []],
    );
    assert.equal(slotsFor(POOL, {affinity: 'any', stream_offset: 0}, 99), undefined);
    assert.deepEqual(slotsFor({...POOL, workers_per_zone: 0}, run(0), 0), []);
  });

  it('a fixed assignment pairs streams and slots one to one for every pool and offset', () => {
    fc.assert(
      fc.property(fc.nat(5), fc.nat(40), fc.nat(99), (workers_per_zone, stream_offset, stream) => {
        const pool = {...POOL, workers_per_zone};
        const slots = slotsFor(pool, run(stream_offset), stream) ?? assert.fail();
        const names = slotsOf(pool).map(({name}) => name);
        assert.deepEqual(slots, names.slice(stream - stream_offset).slice(0, stream < stream_offset ? 0 : 1));
        for (const name of names)
          assert.equal(streamFor(pool, run(stream_offset), name) === stream, slots.includes(name));
      }),
    );
  });

  it('a pool wants every slot with a stream of its own, and other slots for the other streams', () => {
    const names = [A0, A1, B0, B1];
    fc.assert(
      fc.property(
        fc.tuple(...names.map(() => fc.constantFrom(...PHASES))),
        fc.subarray<string>([...names]),
        fc.subarray<string>([...names]),
        fc.nat(5),
        (phases, own, blocked, streams) => {
          const workers = names.map((name, index) =>
            worker(name, phases[index] ?? 'gone', {blocked_until_at: blocked.includes(name) ? at(60) : null}),
          );
          const known = new Map(workers.map(each => [each.name, each]));
          const chosen = wantedSlots(POOL, known, streams, T0, {...FREE, bound: new Set(own)}).wanted;
          const available = workers.filter(each => each.phase !== 'gone' || each.blocked_until_at === null);
          const others = available.filter(({name}) => !own.includes(name));
          for (const {name} of available) if (own.includes(name)) assert.ok(chosen.has(name), name);
          assert.equal(chosen.size, available.length - others.length + Math.min(streams, others.length));
        },
      ),
    );
  });

  it('a slot with a stream of its own comes first in a zone with a small allowance', () => {
    const options = {bound: new Set([A1]), allowances: allow({'us-central1-a': 1})};
    assert.deepEqual([...wantedSlots(POOL, new Map(), 1, T0, {...FREE, ...options}).wanted], [A1, B0]);
  });
});

describe('the wanted slots of a pool', () => {
  it('a pool numbers its slots from 0 in each zone', () => {
    assert.deepEqual(
      slotsOf(POOL).map(slot => slot.name),
      [A0, A1, B0, B1],
    );
  });

  for (const {name, given, unfinished = 1, then} of cases)
    it(name, () => assert.deepEqual(wanted(given, unfinished), [...then].sort()));

  it('a pool wants a slot for each stream, as far as slots are available, and no worker gives way to an empty slot', () => {
    const phases = fc.tuple(...[A0, A1, B0, B1].map(() => fc.constantFrom(...PHASES)));
    fc.assert(
      fc.property(
        phases,
        fc.nat(8),
        fc.array(fc.boolean(), {minLength: 4, maxLength: 4}),
        (chosen, unfinished, blocked) => {
          const workers = [A0, A1, B0, B1].map((name, index) =>
            worker(name, chosen[index] ?? 'gone', {blocked_until_at: blocked[index] ? at(60) : null}),
          );
          const names = wanted(workers, unfinished);
          const available = workers.filter(
            ({phase, blocked_until_at}) => phase !== 'gone' || blocked_until_at === null,
          );
          assert.equal(names.length, Math.min(unfinished, available.length));
          const left = workers.filter(({name}) => !names.includes(name));
          const takesEmpty = workers.some(({name, phase}) => phase === 'gone' && names.includes(name));
          if (takesEmpty)
            assert.ok(
              !left.some(({phase}) => phase === 'working' || phase === 'idle' || phase === 'booting'),
            );
        },
      ),
    );
  });

  it('the wanted slots do not depend on the order of workers', () => {
    const phases = fc.tuple(...[A0, A1, B0, B1].map(() => fc.constantFrom(...PHASES)));
    fc.assert(
      fc.property(phases, fc.nat(4), (chosen, unfinished) => {
        const workers = [A0, A1, B0, B1].map((name, index) => worker(name, chosen[index] ?? 'gone'));
        assert.deepEqual(wanted(workers, unfinished), wanted([...workers].reverse(), unfinished));
      }),
    );
  });

  it('a silent idle worker does not keep the only stream from a canary', () => {
    const options = {canaries: new Map([['us-central1-a', 1]]), silent: new Set<string>([A1])};
    assert.deepEqual(wanted([worker(A0, 'gone'), worker(A1, 'idle')], 1, options), [A0]);
  });
});
