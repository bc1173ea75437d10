import assert from 'node:assert/strict';
import type {Job} from '../../../../shared/domain/records/job.ts';
import {OPEN} from '../../../../shared/domain/records/limiter.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import {afterReservationTimeout, gatherSlots} from '../../../../shared/domain/tick/gangs.ts';
import {aConfig, at, aWorker, T0} from '../../../world/builders.ts';
import {aJob} from '../../../world/scenes/jobs.ts';

const ZONES = {a: 'us-central1-a', b: 'europe-west4-b'};
const POOL = {
  ...aConfig().pool,
  ...{zones: Object.values(ZONES), workers_per_zone: 3, job_wait_s: 120, limiter: OPEN},
};
const BOOT_S = 600;
const NOW_S = 10_000;

/** `a0` is the name of slot 0 in zone a. */
const nameOf = (slot: string) => `tpu-${ZONES[slot[0] as 'a' | 'b']}-${slot[1]}`;
const slotOf = (name: string) => `${name.includes('central') ? 'a' : 'b'}${name.at(-1)}`;

/** A worker in the phase since `s` seconds; at work in phase working. */
const since = (phase: Worker['phase'], s = 10): Partial<Worker> => ({
  ...{phase, phase_since_at: at(NOW_S - s), work: phase === 'working' ? 'my-run/007' : null},
});
const waiting = (s: number, changes: Partial<Job> = {}) =>
  aJob({slices: 2, scheduled_at: at(NOW_S - s), ...changes});
/** A job whose zone a had a pause that ends in `s` seconds. */
const paused = (s: number, changes: Partial<Job> = {}) =>
  waiting(9000, {reservation_timeouts: {[ZONES.a]: {count: 1, next_at: at(NOW_S + s)}}, ...changes});

type Given = {jobs?: Job[]; slots?: Record<string, Partial<Worker>>; silent?: string[]; zones?: 'a'};
type Then = {wanted?: string[]; kept?: string[]; yielding?: string[]; vain?: string[]};

const LATE = waiting(121);
const busy = since('working');
const cases: {name: string; given: Given; then: Then}[] = [
  {name: 'creates its TPUs in one zone', given: {}, then: {wanted: ['a0', 'a1'], kept: ['a0', 'a1']}},
  {
    name: 'gathers in the zone with the fewest creates',
    given: {slots: {b2: since('idle')}},
    then: {wanted: ['b0', 'b2'], kept: ['b0', 'b2']},
  },
  {
    name: 'takes no TPU at work before it is late',
    given: {jobs: [waiting(120)], zones: 'a', slots: {a0: busy, a1: busy}},
    then: {},
  },
  {
    name: 'creates no TPU beside one that still works, and gets that one next',
    given: {jobs: [LATE], zones: 'a', slots: {a0: busy, a1: busy, a2: since('gone')}},
    then: {kept: ['a2'], yielding: ['a0']},
  },
  {
    name: 'prefers creates in one zone to a TPU at work in another one',
    given: {jobs: [LATE], slots: {a0: busy, a1: busy, a2: since('idle')}},
    then: {wanted: ['b0', 'b1'], kept: ['b0', 'b1']},
  },
  {
    name: 'releases an idle TPU that has waited too long for one at work',
    given: {jobs: [waiting(601)], zones: 'a', slots: {a0: busy, a1: busy, a2: since('idle', 601)}},
    then: {kept: ['a2'], yielding: ['a0']},
  },
  {
    name: 'counts on no silent TPU',
    given: {slots: {a0: since('idle'), a1: since('idle')}, silent: ['a0', 'b0', 'b1']},
    then: {wanted: ['a1', 'a2'], kept: ['a1', 'a2']},
  },
  {
    name: 'takes no slot of an earlier job',
    given: {jobs: [waiting(10), waiting(10, {job: 'second'})]},
    then: {wanted: ['a0', 'a1', 'b0', 'b1'], kept: ['a0', 'a1', 'b0', 'b1']},
  },
  {
    name: 'gives up a zone in which a TPU has waited too long, and no later job takes its TPUs at once',
    given: {
      jobs: [waiting(601), waiting(10, {job: 'second'})],
      zones: 'a',
      slots: {a0: since('idle', 601), a1: since('booting', 601)},
    },
    then: {vain: ['a0', 'a1']},
  },
  {
    name: 'has what it needs, however long its TPUs are idle',
    given: {jobs: [waiting(601)], slots: {a0: since('idle', 601), a1: since('idle', 601)}},
    then: {wanted: ['a0', 'a1'], kept: ['a0', 'a1']},
  },
  {
    name: 'does not count the idle time before it waited',
    given: {jobs: [waiting(10)], slots: {a0: since('idle', 601), a1: since('booting', 601)}},
    then: {wanted: ['a0', 'a1'], kept: ['a0', 'a1']},
  },
  {
    name: 'does not count the idle time in a pause of the zone',
    given: {jobs: [paused(-10)], zones: 'a', slots: {a0: since('idle', 601), a1: since('booting', 601)}},
    then: {wanted: ['a0', 'a1'], kept: ['a0', 'a1']},
  },
  {
    name: 'gathers in another zone in a pause',
    given: {jobs: [paused(10)]},
    then: {wanted: ['b0', 'b1'], kept: ['b0', 'b1']},
  },
  {
    name: 'needs as much as one before it that has a pause there: it has the pause too',
    given: {jobs: [paused(10), waiting(10, {job: 'second'})], zones: 'a'},
    then: {},
  },
  {
    name: 'needs less than one before it that has a pause there: it has none',
    given: {jobs: [paused(10, {slices: 3}), waiting(10, {job: 'second'})], zones: 'a'},
    then: {wanted: ['a0', 'a1'], kept: ['a0', 'a1']},
  },
  {
    name: 'waits for no delete in order to begin',
    given: {zones: 'a', slots: {a0: since('deleting'), a1: busy}},
    then: {},
  },
  {
    name: 'waits for the delete of a lost slice with the one that is left',
    given: {zones: 'a', slots: {a0: since('deleting'), a1: busy, a2: since('idle')}},
    then: {wanted: ['a0', 'a2'], kept: ['a0', 'a2']},
  },
];

describe('a job of two slices', () => {
  for (const {name, given, then} of cases)
    it(name, () => {
      const {jobs = [waiting(10)], slots = {}, silent = []} = given;
      const pool = given.zones ? {...POOL, zones: [ZONES.a]} : POOL;
      const workers = Object.entries(slots).map(([slot, changes]) =>
        aWorker({name: nameOf(slot), ...changes}),
      );
      const fleet = {
        pool,
        workers: new Map(workers.map(worker => [worker.name, worker])),
        silent: new Set(silent.map(nameOf)),
      };
      const found = gatherSlots(fleet, jobs, BOOT_S, T0 + NOW_S * 1000);
      const sorted = (names: Iterable<string>) => [...names].map(slotOf).sort();
      assert.deepEqual(
        {
          wanted: sorted(found.wanted),
          kept: sorted(found.reservedFor.keys()),
          yielding: sorted(found.yieldingTo.keys()),
          vain: sorted(found.timeouts.flatMap(({names}) => names)),
        },
        {wanted: [], kept: [], yielding: [], vain: [], ...then},
      );
    });

  it('pauses a zone for twice as long after each failed wait there, for 21 hours at most', () => {
    const pauses_s: (number | undefined)[] = [];
    let [job, now] = [waiting(0), T0];
    for (let time = 0; time < 9; time++) {
      if (time > 0)
        assert.equal(afterReservationTimeout(job, ZONES.a, BOOT_S, now - 1), undefined, 'in a pause');
      job = afterReservationTimeout(job, ZONES.a, BOOT_S, now) ?? assert.fail();
      const end = Date.parse(job.reservation_timeouts[ZONES.a]?.next_at ?? '');
      pauses_s.push((end - now) / 1000);
      now = end;
    }
    assert.deepEqual(pauses_s, [600, 1200, 2400, 4800, 9600, 19_200, 38_400, 76_800, 76_800]);
  });
});
