import assert from 'node:assert/strict';
import fc from 'fast-check';
import {costOfDeleting, costOfDeletingAll, costOfLiving} from '../../../../shared/domain/billing/cost.ts';
import {LIST_PRICES} from '../../../../shared/domain/billing/list-prices.ts';
import {livingInMonth} from '../../../../shared/domain/billing/monthly-spending.ts';
import {usdPerHour} from '../../../../shared/domain/billing/prices.ts';
import {labelsOf} from '../../../../shared/domain/deployment.ts';
import {OPEN} from '../../../../shared/domain/records/limiter.ts';
import type {Pool} from '../../../../shared/domain/records/pool.ts';
import {NO_STREAMS} from '../../../../shared/domain/records/run.ts';
import {newWorker, type Phase, type Worker} from '../../../../shared/domain/records/worker.ts';
import {planBudgets, planTick, type TickPlan} from '../../../../shared/domain/tick/plan-tick.ts';
import {decideSlot, type Slot} from '../../../../shared/domain/tick/slots.ts';
import {NO_OTHERS, type Snapshot, type StreamCounts} from '../../../../shared/domain/tick/snapshot.ts';
import {sortNodes} from '../../../../shared/domain/worker/nodes.ts';
import {newZone} from '../../../../shared/domain/zone/placement.ts';
import {aConfig, aRun, aTpu, at, aWorker, moment, T0} from '../../../world/builders.ts';

const ZONE = 'us-central1-a';
const SLOTS = 4;
const NOW = T0 + 7_200_000;
const USD = LIST_PRICES['v5litepod@us-central1']?.spot_usd ?? Number.NaN;
const PHASES: Phase[] = ['creating', 'booting', 'idle', 'working', 'draining', 'deleting', 'gone'];

const dollars = fc.option(fc.double({min: 0.01, max: 3, noNaN: true}), {nil: null});
const workers = fc.array(
  fc.record({
    phase: fc.constantFrom(...PHASES),
    run: fc.constantFrom('one', 'two'),
    hours: fc.double({min: 0, max: 1.5, noNaN: true}),
  }),
  {maxLength: SLOTS},
);
const given = fc.record({
  workers,
  pool_usd: dollars,
  month_usd: dollars,
  run_usd: fc.tuple(dollars, dollars),
  spent_usd: fc.double({min: 0, max: 0.5, noNaN: true}),
  unfinished: fc.tuple(fc.nat({max: 5}), fc.nat({max: 5})),
});

type Given = typeof given extends fc.Arbitrary<infer T> ? T : never;

function aPool(changes: Partial<Pool> = {}): Pool {
  return {...aConfig().pool, zones: [ZONE], workers_per_zone: SLOTS, limiter: OPEN, ...changes};
}

function theWorker({phase, run, hours}: Given['workers'][number], slot: number): Worker {
  const isReady = phase !== 'creating' && phase !== 'gone';
  const work = phase === 'working' ? `${run}/00${slot}` : null;
  return aWorker({
    ...{name: `tpu-${ZONE}-${slot}`, phase, work, epoch: work ? 1 : null, charged_to: run, usd_per_hour: USD},
    ready_at: isReady ? new Date(NOW - hours * 3_600_000).toISOString() : null,
    ...(phase === 'gone' || phase === 'creating' ? {} : {provider_state: 'READY', health: 'HEALTHY'}),
    ...(isReady ? {hello_at: at(0), heartbeat_at: new Date(NOW - 1000).toISOString()} : {}),
    progress_at: new Date(NOW - 1000).toISOString(),
    ...(work ? {claimed_at: new Date(NOW - 1000).toISOString()} : {}),
  });
}

function counts(unfinished: number): StreamCounts {
  const totals = {...NO_STREAMS, streams_pending: unfinished, failed: undefined};
  return {streams: unfinished, unfinished, totals, areAllOver: unfinished === 0, slots: [], counted_ms: NOW};
}

function theSnapshot({workers, pool_usd, run_usd, spent_usd, unfinished}: Given): Snapshot {
  const all = workers.map(theWorker);
  const nodes = all.filter(({phase}) => phase !== 'gone' && phase !== 'creating');
  const labels = {...labelsOf('gleaner'), 'gleaner-incarnation': '2'};
  const listed = nodes.map(({name, zone}) => ({
    ...{name, zone, state: 'READY', health: 'HEALTHY', labels, symptoms: [], queued: null, created_at: at(0)},
  }));
  return {
    pool: aPool({budget_usd: pool_usd, spent_usd}),
    isUnreadable: false,
    jobs: {waiting: 0},
    others: NO_OTHERS,
    prices: LIST_PRICES,
    month: {name: '2026-01', copied_at: null, spent_usd},
    creates: 7,
    late_pools: [],
    creates_next_at: null,
    runs: [
      aRun({run: 'one', budget_usd: run_usd[0], spent_usd: spent_usd / 2}),
      aRun({run: 'two', budget_usd: run_usd[1], spent_usd: spent_usd / 2}),
    ],
    ended: [],
    workers: new Map(all.map(worker => [worker.name, worker])),
    unreadable: new Set(),
    unreadable_runs: new Set(),
    read_at_ms: NOW,
    nodes: sortNodes(listed, {deployment: 'gleaner', unreachable: [], at_ms: NOW}),
    zones: [newZone(ZONE, NOW)],
    servedTime: moment(NOW).servedTime,
    streams: new Map([
      ['one', counts(unfinished[0])],
      ['two', counts(unfinished[1])],
    ]),
    lostWorkers: new Set(),
  };
}

function configOf({month_usd}: Given) {
  const config = aConfig({GLEANER_ZONES: ZONE, GLEANER_WORKERS_PER_ZONE: String(SLOTS)});
  return {...config, ceilings: {...config.ceilings, max_budget_usd: month_usd}};
}

/** The slots of a plan in which a node is created. */
function created({others, inputs}: TickPlan, limits: ReturnType<typeof aConfig>['limits']): Slot[] {
  return [...others.values()].flat().filter(slot => {
    const before = slot.seen ?? newWorker(slot.name, slot.place, NOW);
    const {actions} = decideSlot(slot, before, inputs, limits, NOW, 'ends');
    return actions.some(({kind}) => kind === 'create') && before.phase === 'gone';
  });
}

describe('the plan of a tick', () => {
  it('never spends beyond a cap: what lives and what is created can be deleted within each budget', () => {
    let creates = 0;
    fc.assert(
      fc.property(given, input => {
        const [snapshot, config] = [theSnapshot(input), configOf(input)];
        const plan = planTick(snapshot, config, NOW);
        const slots = created(plan, config.limits);
        creates += slots.length;
        if (slots.length === 0) return;
        const all = [...snapshot.workers.values()];
        const living = costOfLiving(all, NOW);
        const leaving = costOfDeletingAll(all);
        const price = costOfDeleting(usdPerHour(LIST_PRICES, {...snapshot.pool, zone: ZONE}) ?? 0);
        const committed = living.total + leaving.total + slots.length * price;
        const {pool} = snapshot;
        assert.ok(pool.spent_usd + committed <= (pool.budget_usd ?? Infinity), 'of the pool');
        const name = '2026-01';
        const living_usd = livingInMonth({name, copied_at: null}, all, NOW);
        const month = input.spent_usd + living_usd + leaving.total;
        assert.ok(month + slots.length * price <= (input.month_usd ?? Infinity), 'of the month');
        for (const {run, budget_usd, spent_usd} of snapshot.runs) {
          const paid = slots.filter(({name}) => plan.inputs.payers.get(name) === run).length;
          const spent = spent_usd + (living.runs.get(run) ?? 0) + (leaving.runs.get(run) ?? 0);
          assert.ok(paid === 0 || spent + paid * price <= (budget_usd ?? Infinity), `of run ${run}`);
        }
      }),
      {numRuns: 1000},
    );
    assert.ok(creates > 100, `${creates} creates are too few to say anything`);
  });

  it('deletes each living worker of a budget that is spent, before any list of nodes is there', () => {
    let deletes = 0;
    fc.assert(
      fc.property(given, input => {
        const [snapshot, config] = [theSnapshot(input), configOf(input)];
        const plan = planBudgets(snapshot, config, NOW);
        const all = [...snapshot.workers.values()];
        const {total} = costOfLiving(all, NOW);
        const {pool} = snapshot;
        const isSpent = pool.budget_usd !== null && pool.spent_usd + total >= pool.budget_usd;
        if (!isSpent) return;
        const going = [...plan.deletes.values()].flat().map(({name}) => name);
        const living = all.filter(({phase}) => phase !== 'gone' && phase !== 'deleting');
        deletes += going.length;
        assert.deepEqual(going.sort(), living.map(({name}) => name).sort());
      }),
      {numRuns: 2000},
    );
    assert.ok(deletes > 100, `${deletes} deletes are too few to say anything`);
  });

  it('creates no more nodes than streams are unfinished or slots are free', () => {
    fc.assert(
      fc.property(given, input => {
        const [snapshot, config] = [theSnapshot(input), configOf(input)];
        const slots = created(planTick(snapshot, config, NOW), config.limits);
        const free = SLOTS - [...snapshot.workers.values()].filter(({phase}) => phase !== 'gone').length;
        assert.ok(slots.length <= Math.min(free, input.unfinished[0] + input.unfinished[1]));
      }),
      {numRuns: 2000},
    );
  });

  const whole: Given = {
    ...{workers: [{phase: 'idle', run: 'one', hours: 0.1}], pool_usd: null, month_usd: null, spent_usd: 0},
    ...{run_usd: [null, null], unfinished: [3, 0]},
  };
  const changed = (plan: TickPlan) =>
    [...plan.deletes.values(), ...plan.others.values()].flat().map(({name}) => name);

  for (const {unknown, snapshot} of [
    {unknown: 'the list of nodes', snapshot: {...theSnapshot(whole), nodes: undefined}},
    {unknown: 'the documents of the zones', snapshot: {...theSnapshot(whole), zones: undefined}},
    {unknown: 'the count of streams', snapshot: {...theSnapshot(whole), streams: new Map()}},
  ])
    it(`concludes nothing from a hole: without ${unknown} it creates and deletes nothing`, () => {
      assert.deepEqual(changed(planTick(snapshot, configOf(whole), NOW)), []);
    });

  it('creates no node in a slot without a document while its zone has many orphans: a list may omit one', () => {
    const many = {since_at: at(0), unseen_since_at: null};
    const createdWith = (orphans: typeof many | null) => {
      const snapshot = {...theSnapshot(whole), zones: [{...newZone(ZONE, NOW), orphans}]};
      const config = configOf(whole);
      return created(planTick(snapshot, config, NOW), config.limits).length;
    };
    assert.deepEqual([createdWith(null), createdWith(many)], [2, 0]);
  });

  it('plans the same twice, and changes no fact of its snapshot', () => {
    fc.assert(
      fc.property(given, input => {
        const [snapshot, config] = [theSnapshot(input), configOf(input)];
        const before = structuredClone(snapshot);
        assert.deepEqual(planTick(snapshot, config, NOW), planTick(snapshot, config, NOW));
        assert.deepEqual(snapshot, before);
      }),
      {numRuns: 200},
    );
  });

  const planned = (workers: Worker[], changes: Partial<Snapshot> = {}) => {
    const known = new Map(workers.map(worker => [worker.name, worker]));
    return planTick(
      {...theSnapshot({...whole, workers: []}), workers: known, ...changes},
      configOf(whole),
      NOW,
    );
  };
  const slot = (number: number) => `tpu-${ZONE}-${number}`;
  const over: StreamCounts = {...counts(0), totals: {...counts(0).totals, streams_completed: 1}};
  const failed: StreamCounts = {...over, totals: {...over.totals, streams_failed: 1}};
  const unchanged: StreamCounts = {...over, unfinished: 1, areAllOver: false, counted_ms: null};
  const atWork = (work: string, changes: Partial<Worker> = {}) =>
    aWorker({
      ...{name: slot(0), phase: 'working', work, epoch: 1, usd_per_hour: USD, charged_to: 'one'},
      ...{ready_at: at(0), costs_at: at(7200), heartbeat_at: at(7199), claimed_at: at(7199), ...changes},
    });

  for (const {name, run, counted, workers = [], next} of [
    {name: 'ends where all its streams are over', run: {}, counted: over, next: 'finish'},
    {
      name: 'stays open while a worker holds its last stream',
      ...{run: {}, counted: over, workers: [atWork('one/007')], next: 'continue'},
    },
    {
      name: 'that is paused stays open with a failed stream',
      run: {status: 'paused'},
      counted: failed,
      next: 'continue',
    },
    {
      name: 'that is paused ends where all its streams are complete',
      run: {status: 'paused'},
      counted: over,
      next: 'finish',
    },
    {name: 'is not written where nothing has changed', run: {}, counted: unchanged, next: undefined},
    {
      name: 'is written with the first dollars of a budget',
      ...{run: {budget_usd: 9}, counted: unchanged, workers: [atWork('one/007', {costs: {one: 0.5}})]},
      next: 'continue',
    },
    {
      name: 'is written with many dollars for downloads',
      ...{run: {}, counted: unchanged, workers: [atWork('one/007', {costs: {'_downloads/one': 2}})]},
      next: 'continue',
    },
  ] as const)
    it(`a run ${name}`, () => {
      const runs = [aRun({run: 'one', ...run})];
      const plan = planned([...workers], {runs, streams: new Map([['one', counted]])});
      assert.deepEqual(
        plan.runs.map(each => each.next),
        next === undefined ? [] : [next],
      );
    });

  for (const {name, worker, unreadable, isNotified} of [
    {name: 'of an active run gets no notice', worker: atWork('one/007'), isNotified: false},
    {
      name: 'that drains for a run that continues gets one',
      worker: atWork('one/007', {drains: true}),
      isNotified: true,
    },
    {name: 'of a run without a document gets one', worker: atWork('lost/007'), isNotified: true},
    {
      name: 'of a run whose document could not be read gets none',
      ...{worker: atWork('lost/007'), unreadable: 'lost', isNotified: false},
    },
    {name: 'of a paused run gets one', worker: atWork('paused/007'), isNotified: true},
    {
      name: 'that drains for a paused run gets none',
      worker: atWork('paused/007', {drains: true}),
      isNotified: false,
    },
  ])
    it(`a worker ${name}`, () => {
      const runs = [aRun({run: 'one'}), aRun({run: 'paused', status: 'paused'})];
      const {notices} = planned([worker], {runs, unreadable_runs: new Set(unreadable ? [unreadable] : [])});
      assert.equal(notices.length === 1, isNotified);
    });

  it('does not touch a create of another tick that is newer than its reads', () => {
    const creating = (s: number) =>
      aWorker({name: slot(0), phase: 'creating', phase_since_at: at(s), asked_at: at(s), charged_to: 'new'});
    const deletes = (s: number) => changed(planned([creating(s)], {runs: [], streams: new Map()}));
    assert.deepEqual([deletes(7199), deletes(7201)], [[slot(0)], []]);
  });

  it('deletes many orphans at once where no budget pays for their hour', () => {
    const orphans = [0, 1, 2, 3].map(number => aTpu({name: slot(number), zone: ZONE}));
    const nodes = sortNodes(orphans, {deployment: 'gleaner', unreachable: [], at_ms: NOW});
    const deletes = (budget_usd: number | null) =>
      changed(planned([], {nodes, pool: aPool({budget_usd}), runs: [], streams: new Map()})).length;
    assert.deepEqual([deletes(null), deletes(0.01)], [0, 4]);
  });

  it('ends the stop of a pool with the first message of an agent after its last failed boot', () => {
    const limiter = {...OPEN, failed_boots: 1, failed_boot_at: at(60), bundle: aConfig().bundle};
    const pool_at = (agent_at: string) =>
      planned([atWork('one/007', {agent_at})], {pool: aPool({limiter})}).hellos.pool_at;
    assert.deepEqual([pool_at(at(59)), pool_at(at(61))], [undefined, at(61)]);
  });
});
