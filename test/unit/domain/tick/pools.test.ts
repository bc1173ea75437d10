import assert from 'node:assert/strict';
import {costOfDeleting} from '../../../../shared/domain/billing/cost.ts';
import {LIST_PRICES} from '../../../../shared/domain/billing/list-prices.ts';
import {usdPerHour} from '../../../../shared/domain/billing/prices.ts';
import {labelsOf} from '../../../../shared/domain/deployment.ts';
import type {Pool} from '../../../../shared/domain/records/pool.ts';
import {NO_STREAMS} from '../../../../shared/domain/records/run.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import {budgetsByPool, planPools, snapshotsByPool} from '../../../../shared/domain/tick/pools.ts';
import type {DeploymentSnapshot} from '../../../../shared/domain/tick/snapshot.ts';
import {sortNodes, type Tpu} from '../../../../shared/domain/worker/nodes.ts';
import {newZone} from '../../../../shared/domain/zone/placement.ts';
import {decideSilence} from '../../../../shared/domain/zone/silence-guard.ts';
import {aConfig, aRun, at, aWorker, moment, T0} from '../../../world/builders.ts';

const ZONE = 'us-central1-a';
const own = {...aConfig().pool, zones: [ZONE], workers_per_zone: 4};
const fast: Pool = {...own, pool: 'fast', accelerator: 'v6e-1'};

const slot = (pool: string, number: number) => `${pool}-${ZONE}-${number}`;
const workersOf = (...workers: Worker[]) => new Map(workers.map(worker => [worker.name, worker]));
const waiting = (count: number) => ({
  ...{streams: count, unfinished: count, areAllOver: false, slots: [], counted_ms: T0},
  totals: {...NO_STREAMS, streams_pending: count, failed: undefined},
});
const aNode = (name: string, labels = {}): Tpu => ({
  ...{name, zone: ZONE, state: 'READY', health: 'HEALTHY', symptoms: [], queued: null, created_at: at(0)},
  labels: {...labelsOf('gleaner'), 'gleaner-incarnation': '1', ...labels},
});

function aSnapshot(changes: Partial<DeploymentSnapshot> = {}, tpus: Tpu[] = []): DeploymentSnapshot {
  return {
    ...{read_at_ms: T0, pools: [own, fast], unreadable_pools: new Set(), prices: LIST_PRICES, creates: 10},
    late_pools: [],
    creates_next_at: null,
    jobs: new Map([
      ['tpu', {waiting: 0}],
      ['fast', {waiting: 0}],
    ]),
    month: {name: '2026-01', copied_at: null, spent_usd: 0},
    runs: [aRun({run: 'slow'}), aRun({run: 'quick', pool: 'fast'})],
    ...{ended: [], unreadable_runs: new Set(), workers: new Map(), unreadable: new Set()},
    lostWorkers: new Set(),
    nodes: sortNodes(tpus, {deployment: 'gleaner', unreachable: [], at_ms: T0}),
    zones: [newZone(ZONE, T0), newZone(ZONE, T0, 'fast')],
    servedTime: moment(T0).servedTime,
    streams: new Map([
      ['slow', waiting(9)],
      ['quick', waiting(9)],
    ]),
    ...changes,
  };
}

const configOf = (max_workers: number) => {
  const config = aConfig();
  return {...config, ceilings: {...config.ceilings, max_workers}};
};
const wantedOf = (snapshot: DeploymentSnapshot, max_workers: number) =>
  planPools(snapshot, configOf(max_workers), T0).map(({plan}) => [
    plan.inputs.pool.pool,
    [...plan.inputs.payers.keys()].length,
    plan.inputs.mostCreates,
  ]);

describe('the parts of a snapshot', () => {
  it('have each node and each document of a slot exactly once', () => {
    const stray = aNode('tpu-without-slot');
    const tpus = [aNode(slot('tpu', 0)), aNode(slot('fast', 0)), aNode(slot('ghost', 0)), stray];
    const workers = workersOf(aWorker({name: slot('tpu', 0)}), aWorker({name: slot('fast', 0)}));
    const unreadable = new Set([slot('fast', 1)]);
    const parts = snapshotsByPool(aSnapshot({workers, unreadable}, tpus));
    assert.deepEqual(
      parts.map(({pool, nodes, workers, unreadable}) => [
        pool.pool,
        [...(nodes?.tpus.keys() ?? [])],
        [...workers.keys()],
        [...unreadable],
        nodes?.strays.length,
      ]),
      [
        ['tpu', [slot('tpu', 0)], [slot('tpu', 0)], [], 1],
        ['fast', [slot('fast', 0)], [slot('fast', 0)], [slot('fast', 1)], 0],
        ['ghost', [slot('ghost', 0)], [], [], 0],
      ],
    );
  });

  it('have a part for a pool that only a worker, a run or the record of a zone names', () => {
    const {silence_guard} = decideSilence(
      null,
      {worker: aWorker(), speakers: 1, isCrowded: false, isLost: false, silent_s: 1},
      moment(T0),
    );
    const zones = [
      {...newZone(ZONE, T0, 'guarded'), silence_guard},
      {...newZone(ZONE, T0, 'marked'), orphans: {since_at: at(0), unseen_since_at: null}},
    ];
    const workers = workersOf(aWorker({name: slot('left', 0)}));
    const runs = [aRun({run: 'lost', pool: 'gone'})];
    const parts = snapshotsByPool(aSnapshot({zones, workers, runs}));
    assert.deepEqual(
      parts.map(({pool, jobs}) => [pool.pool, jobs?.waiting]),
      [
        ['tpu', 0],
        ['fast', 0],
        ['gone', 0],
        ['left', 0],
        ['guarded', 0],
        ['marked', 0],
      ],
    );
    assert.deepEqual(parts.at(-1)?.zones, zones.slice(1));
  });

  it('know only the zones of their own pool', () => {
    const parts = snapshotsByPool(aSnapshot());
    assert.deepEqual(
      parts.map(({zones}) => zones?.map(({pool}) => pool)),
      [[null], ['fast']],
    );
  });

  it('tell an unreadable pool from a pool without a document', () => {
    const parts = budgetsByPool(aSnapshot({pools: [own], unreadable_pools: new Set(['fast'])}));
    assert.deepEqual(
      parts.map(({pool, isUnreadable}) => [pool.pool, isUnreadable]),
      [
        ['tpu', false],
        ['fast', true],
      ],
    );
    const [own_part] = budgetsByPool(aSnapshot({unreadable_pools: new Set(['tpu'])}));
    assert.equal(own_part?.isUnreadable, true);
  });
});

describe('the plans of several pools', () => {
  it('begin with the pools that got no node in the last tick', () => {
    const first = (late_pools: string[]) => wantedOf(aSnapshot({late_pools}), 100)[0]?.[0];
    assert.deepEqual([first([]), first(['fast'])], ['tpu', 'fast']);
  });

  it('share the ceiling of workers in sequence, and their creates fit the count of all creates', () => {
    assert.deepEqual(wantedOf(aSnapshot(), 100), [
      ['tpu', 4, 110],
      ['fast', 4, 110],
    ]);
    assert.deepEqual(wantedOf(aSnapshot(), 6), [
      ['tpu', 4, 16],
      ['fast', 2, 16],
    ]);
  });

  it('count the living nodes, the orphans and the unreadable documents of the other pools', () => {
    const tpus = [aNode(slot('fast', 1))];
    const workers = workersOf(aWorker({name: slot('fast', 0), phase: 'booting', ready_at: at(0)}));
    const unreadable = new Set([slot('fast', 2)]);
    assert.deepEqual(wantedOf(aSnapshot({workers, unreadable}, tpus), 6)[0], ['tpu', 3, 13]);
  });

  it('share the month: a later pool has what earlier pools leave', () => {
    const config = configOf(100);
    const ceilings = {...config.ceilings, max_budget_usd: 0.1};
    const plans = planPools(aSnapshot(), {...config, ceilings}, T0);
    const usd = plans.reduce((sum, {plan}) => sum + plan.taken.usd, 0);
    const alone = planPools(aSnapshot({pools: [own]}), {...config, ceilings}, T0)[0]?.plan.taken;
    assert.deepEqual(plans[0]?.plan.taken, alone);
    assert.ok(usd < 0.1, String(usd));
  });

  it('keep the money of the month that the orphans of other pools cost', () => {
    const usd = usdPerHour(LIST_PRICES, {...own, zone: ZONE}) ?? assert.fail();
    const config = configOf(100);
    const ceilings = {...config.ceilings, max_budget_usd: 1.5 * costOfDeleting(usd)};
    const creates = (tpus: Tpu[]) =>
      planPools(aSnapshot({}, tpus), {...config, ceilings}, T0)[0]?.plan.taken.creates;
    assert.deepEqual([creates([]), creates([aNode(slot('fast', 1))])], [1, 0]);
  });

  it('keep every node of an unreadable pool, and create none there', () => {
    const workers = workersOf(aWorker({name: slot('fast', 0), phase: 'idle', ready_at: at(0)}));
    const snapshot = aSnapshot({pools: [own], unreadable_pools: new Set(['fast']), workers});
    const plan = planPools(snapshot, configOf(100), T0)[1]?.plan;
    assert.deepEqual([plan?.deletes.size, plan?.taken.creates, plan?.inputs.payers.size], [0, 0, 0]);
  });
});
