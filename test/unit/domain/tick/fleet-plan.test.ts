import assert from 'node:assert/strict';
import {JOBS} from '../../../../shared/domain/billing/cost.ts';
import {type Limiter, OPEN} from '../../../../shared/domain/records/limiter.ts';
import {NO_STREAMS} from '../../../../shared/domain/records/run.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import type {Zone} from '../../../../shared/domain/records/zone.ts';
import {silentWorkers} from '../../../../shared/domain/tick/blocked-slots.ts';
import {decideBudgets} from '../../../../shared/domain/tick/budgets.ts';
import {type FleetPlan, planFleet} from '../../../../shared/domain/tick/fleet-plan.ts';
import {NO_OTHERS, type Snapshot} from '../../../../shared/domain/tick/snapshot.ts';
import {sortNodes} from '../../../../shared/domain/worker/nodes.ts';
import {afterFailedBoot, afterPause} from '../../../../shared/domain/zone/limiter.ts';
import {newZone} from '../../../../shared/domain/zone/placement.ts';
import {decideSilence} from '../../../../shared/domain/zone/silence-guard.ts';
import {aConfig, aRun, at, aWorker, moment, T0} from '../../../world/builders.ts';
import {aJob} from '../../../world/scenes/jobs.ts';

const [A, B] = ['us-central1-a', 'europe-west4-b'];
const [A0, A1, B0] = [`tpu-${A}-0`, `tpu-${A}-1`, `tpu-${B}-0`];
const NOW_S = 9000;
const NOW = T0 + NOW_S * 1000;
const CONFIG = aConfig({GLEANER_ZONES: `${A},${B}`, GLEANER_WORKERS_PER_ZONE: '2'});
const POOL = {...CONFIG.pool, limiter: OPEN};
const PRICES = {[POOL.accelerator]: {usd: 20, spot_usd: 20}};

type Given = Partial<Omit<Snapshot, 'pool' | 'workers' | 'zones' | 'streams'>> & {
  pool?: Partial<Snapshot['pool']>;
  workers?: Worker[];
  zones?: Partial<Zone>[];
  /** Unfinished streams of each run. */
  streams?: Record<string, number>;
  /** Slots with a bound stream of each run. */
  bound?: Record<string, string[]>;
  /** Pending streams of each run, if not all of the unfinished. */
  pending?: number;
  max_workers?: number;
  orphans_usd?: number;
};

function plan({
  pool,
  workers = [],
  zones = [],
  streams = {'my-run': 1},
  bound = {},
  ...given
}: Given): FleetPlan {
  const {max_workers = 100, orphans_usd = 0, pending, ...changes} = given;
  const counts = Object.entries(streams).map(([run, unfinished]) => {
    const totals = {...NO_STREAMS, streams_pending: pending ?? unfinished, failed: undefined};
    const slots = bound[run] ?? [];
    return [
      run,
      {streams: unfinished, unfinished, totals, areAllOver: false, slots, counted_ms: NOW},
    ] as const;
  });
  const snapshot: Snapshot = {
    ...{read_at_ms: NOW, pool: {...POOL, ...pool}, isUnreadable: false, jobs: {waiting: 0}},
    others: NO_OTHERS,
    ...{
      prices: PRICES,
      month: {name: '2026-01', copied_at: null, spent_usd: 0},
      creates: 7,
      late_pools: [],
      creates_next_at: null,
    },
    ...{runs: [aRun()], ended: [], unreadable_runs: new Set(), unreadable: new Set(), lostWorkers: new Set()},
    workers: new Map(workers.map(worker => [worker.name, worker])),
    nodes: sortNodes([], {deployment: 'gleaner', unreachable: [], at_ms: NOW}),
    zones: [A, B].map((zone, index) => ({...newZone(zone, T0), ...zones[index]})),
    servedTime: moment(NOW).servedTime,
    streams: new Map(counts),
    ...changes,
  };
  const config = {...CONFIG, ceilings: {...CONFIG.ceilings, max_workers}};
  const decided = {
    budgets: decideBudgets(snapshot, config.ceilings, NOW),
    orphans: {names: [], usd: orphans_usd},
    silent: silentWorkers(snapshot, config.limits.silent_s),
  };
  return planFleet(snapshot, decided, config, NOW);
}

const heard = (name: string, changes: Partial<Worker> = {}) =>
  aWorker({name, phase: 'idle', heartbeat_at: at(NOW_S - 1), charged_to: 'my-run', ...changes});
/** An idle worker that lost its work of `run` by silence, and has said nothing for `s` seconds. */
const suspected = (work: string, s: number) =>
  heard(A0, {heartbeat_at: at(NOW_S - s), suspect: {work, epoch: 1, total_shards: 0}});
const failed = (bundle: string = CONFIG.bundle) =>
  Array.from({length: 5}).reduce<Limiter>(
    limiter => afterFailedBoot(limiter, bundle, 'no disk', NOW - 7_200_000),
    OPEN,
  );
const {silence_guard} = decideSilence(
  null,
  {worker: heard(A0), speakers: 1, isCrowded: false, isLost: false, silent_s: 1},
  moment(NOW),
);

describe('the fleet plan', () => {
  const {drain_s} = CONFIG.limits;
  const cases: {name: string; given: Given; then: string[]}[] = [
    {
      name: 'keeps the TPU of a run that could not be read, and also wants one for other work',
      given: {workers: [heard(A0, {charged_to: 'lost'})], unreadable_runs: new Set(['lost'])},
      then: [A0, A1],
    },
    {
      name: 'keeps a silent TPU of a paused run until the time of a drain',
      given: {workers: [suspected('paused/007', drain_s)]},
      then: [A0],
    },
    {
      name: 'replaces a silent TPU of a paused run after the time of a drain',
      given: {workers: [suspected('paused/007', drain_s + 1)]},
      then: [A1],
    },
    {
      name: 'keeps a silent TPU of a job: a job has no run that is paused',
      given: {workers: [suspected('job:my-job', drain_s + 1)]},
      then: [A0],
    },
    {
      name: 'wants a TPU in another zone for one that is requested without effect in a zone without an answer',
      given: {
        workers: [heard(A0, {phase: 'creating', asked_at: at(0)})],
        nodes: sortNodes([], {deployment: 'gleaner', unreachable: [A], at_ms: NOW}),
      },
      then: [B0],
    },
    {
      name: 'wants no TPU that a budget dismisses',
      given: {
        workers: [heard(A0, {phase: 'working', work: 'spent/007', ready_at: at(0), usd_per_hour: 20})],
        runs: [aRun(), aRun({run: 'spent', budget_usd: 1})],
        streams: {'my-run': 1, spent: 1},
      },
      then: [A1],
    },
    {
      name: 'wants a TPU for a job beside the one at a job',
      given: {
        workers: [heard(A0, {phase: 'working', work: 'job:other'})],
        jobs: {waiting: 1},
        streams: {},
        runs: [],
      },
      then: [A0, A1],
    },
    {
      name: 'wants a canary of the silence guard before its silent TPU',
      given: {workers: [heard(A1, {heartbeat_at: at(0)})], zones: [{silence_guard}]},
      then: [A0],
    },
    {
      name: 'wants no more canaries before silent TPUs than the silence guard has due',
      given: {
        workers: [heard(A0, {heartbeat_at: at(0)}), heard(A1, {heartbeat_at: at(0)})],
        ...{zones: [{}, {silence_guard}], streams: {'my-run': 2}},
      },
      then: [A0, B0],
    },
    {
      name: 'keeps as many TPUs as the deployment allows',
      given: {workers: [heard(A0), heard(A1)], streams: {'my-run': 2}, max_workers: 1},
      then: [A0],
    },
    {
      name: 'leaves a place for a node without a valid document',
      given: {streams: {'my-run': 4}, max_workers: 2, unreadable: new Set([A1])},
      then: [A0],
    },
    {
      name: 'fills a zone whose stop was for an earlier bundle in its turn',
      given: {zones: [{limiter: failed('old')}]},
      then: [A0],
    },
    {
      name: 'asks the zone that was asked longest ago in a pool whose boots fail',
      given: {
        ...{streams: {'my-run': 9}, pool: {limiter: failed()}},
        zones: [60, 120].map(s => ({limiter: {...OPEN, asked_at: at(NOW_S - s)}})),
      },
      then: [B0],
    },
    {
      name: 'asks a zone with a free slot in a pool whose boots fail',
      given: {
        ...{streams: {'my-run': 9}, pool: {limiter: failed()}},
        workers: [heard(A0), heard(A1, {phase: 'gone', held: true})],
      },
      then: [B0, A0],
    },
    {
      name: 'asks for no canary in a pool that a person paused',
      given: {pool: {limiter: afterPause(OPEN, NOW)}, zones: [{silence_guard}]},
      then: [],
    },
  ];
  for (const {name, given, then} of cases)
    it(name, () => {
      const {wanted} = plan(given);
      assert.deepEqual([...wanted].sort(), then.toSorted());
    });

  it('gives a slot to one payer: a job of several slices before a bound stream, and that of the first run', () => {
    const first = [aJob({slices: 2, scheduled_at: at(NOW_S)})];
    const given = {
      runs: [aRun({affinity: 'fixed', priority: 1}), aRun({run: 'other', affinity: 'fixed'})],
      streams: {'my-run': 3, other: 3},
      bound: {'my-run': [A0, B0], other: [A0, B0]},
    } satisfies Given;
    const {payers} = plan({...given, jobs: {waiting: 1, first}});
    assert.deepEqual(Object.fromEntries(payers), {[A0]: JOBS, [A1]: JOBS, [B0]: 'my-run'});
  });

  it('creates no node with the money that is kept for orphans', () => {
    const creates = (orphans_usd: number) => plan({pool: {budget_usd: 3}, orphans_usd}).creates;
    assert.deepEqual([creates(1.9), creates(2.1)], [1, 0]);
  });

  it('leaves no room for creates of another tick if a budget pays only for its own', () => {
    const room = (budget_usd: number | null) => plan({pool: {budget_usd}, max_workers: 3}).mostCreates;
    assert.deepEqual([room(null), room(9)], [7 + 3, 7 + 1]);
  });

  for (const {what, given} of [
    {what: 'the prices', given: {prices: undefined}},
    {what: 'the dollars of the month', given: {month: undefined}},
    {
      what: 'the dollars of a month whose document is invalid',
      given: {month: {name: '2026-01', copied_at: null, spent_usd: undefined}},
    },
    {what: 'the count of creates', given: {creates: undefined}},
  ] satisfies {what: string; given: Given}[])
    it(`creates no node without ${what}, and keeps the others`, () => {
      const {wanted, creates, mostCreates, reserved_usd} = plan({
        workers: [heard(A0)],
        streams: {'my-run': 2},
        ...given,
      });
      assert.ok(wanted.has(A0));
      assert.deepEqual([creates, mostCreates, reserved_usd], [0, 0, 0]);
    });

  const atWork = (name: string, changes: Partial<Worker> = {}) =>
    heard(name, {phase: 'working', work: 'my-run/007', ...changes});
  const model = {waits_for: 'the hub'};
  for (const {name, given, kind} of [
    {
      name: 'waits for its model where every TPU of it does',
      ...{given: {workers: [atWork(A0, model), atWork(A1, model)], pending: 0}, kind: 'model'},
    },
    {
      name: 'stays active while one of its TPUs does not wait for its model',
      ...{given: {workers: [atWork(A0, model), atWork(A1)], pending: 0}, kind: undefined},
    },
    {
      name: 'waits for a boot where no more TPUs are needed',
      ...{given: {workers: [atWork(A0), heard(A1, {phase: 'booting'})], pending: 1}, kind: 'coming'},
    },
    {
      name: 'waits for the deployment where more TPUs are needed than boot',
      given: {workers: [atWork(A0), heard(A1, {phase: 'booting'})], streams: {'my-run': 4}, max_workers: 2},
      kind: 'ceiling',
    },
    {
      name: 'does not wait for streams that have ended since they were counted',
      ...{given: {workers: [atWork(A0)], streams: {'my-run': 0}, pending: 1}, kind: undefined},
    },
  ] satisfies {name: string; given: Given; kind: string | undefined}[])
    it(`says that a run ${name}`, () => assert.equal(plan(given).constraints.work.get('my-run')?.kind, kind));
});
