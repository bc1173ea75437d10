import assert from 'node:assert/strict';
import {OPEN} from '../../../../shared/domain/records/limiter.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import {decideSlot, isStillPlanned, type PlanInputs, slotOf} from '../../../../shared/domain/tick/slots.ts';
import {NOT_LISTED, sortNodes} from '../../../../shared/domain/worker/nodes.ts';
import {aConfig, aTpu, at, aWorker, moment, T0} from '../../../world/builders.ts';

const INPUTS: PlanInputs = {
  ...{read_at_ms: T0, planned_at_ms: T0, nodes: NOT_LISTED, pool: {...aConfig().pool, limiter: OPEN}},
  prices: {},
  ...{payers: new Map(), mostCreates: 0, spare: new Map(), tickBill: {usd: 0}},
  servedTime: moment(T0).servedTime,
  ...{speakersByZone: new Map(), fullZones: new Set(), lostWorkers: new Set(), shardsByRun: new Map()},
};

describe('the plan of a slot without money for its worker', () => {
  const cases: {name: string; now: Partial<Worker>; isPlanned: boolean}[] = [
    {name: 'applies to the worker that it has seen', now: {phase: 'working'}, isPlanned: true},
    {name: 'applies to that worker in another phase', now: {phase: 'idle'}, isPlanned: true},
    {
      name: 'does not apply to the next incarnation',
      now: {phase: 'creating', incarnation: 3},
      isPlanned: false,
    },
  ];
  for (const {name, now, isPlanned} of cases)
    it(name, () => {
      const seen = aWorker({phase: 'working', incarnation: 2});
      const [slot] = slotOf(seen.name, 'dismissed', new Map([[seen.name, seen]]));
      assert.equal(isStillPlanned(slot ?? assert.fail(), {...seen, ...now}, INPUTS), isPlanned);
    });
});

describe('the plan of a slot whose node Cloud TPU did not find', () => {
  for (const {name, heartbeat_at, isPlanned} of [
    {name: 'applies to a worker that has stayed silent', heartbeat_at: at(0), isPlanned: true},
    {name: 'does not apply to a worker with a later heartbeat', heartbeat_at: at(60), isPlanned: false},
  ])
    it(name, () => {
      const seen = aWorker({phase: 'working', heartbeat_at: at(0)});
      const [slot] = slotOf(seen.name, 'wanted', new Map([[seen.name, seen]]));
      const inputs = {...INPUTS, nodes: {...NOT_LISTED, absent: new Set([seen.name])}};
      assert.equal(isStillPlanned(slot ?? assert.fail(), {...seen, heartbeat_at}, inputs), isPlanned);
    });
});

describe('the plan of a slot that gets no work', () => {
  for (const {name, wanted, isPlanned} of [
    {name: 'does not apply to a worker that has work since', wanted: 'unwanted', isPlanned: false},
    {name: 'applies to any worker where its slot is wanted', wanted: 'wanted', isPlanned: true},
  ] as const)
    it(name, () => {
      const seen = aWorker({phase: 'idle'});
      const [slot] = slotOf(seen.name, wanted, new Map([[seen.name, seen]]));
      assert.equal(isStillPlanned(slot ?? assert.fail(), {...seen, phase: 'working'}, INPUTS), isPlanned);
    });
});

describe('the code of a pool', () => {
  for (const {name, worker, node, version} of [
    {
      name: 'reaches each worker of it',
      worker: {heartbeat_at: at(0), progress_at: at(0)},
      node: 'READY',
      version: 2,
    },
    {name: 'does not reach a worker that has ended', worker: {}, node: 'PREEMPTED', version: 0},
  ])
    it(name, () => {
      const before = aWorker({phase: 'idle', ready_at: at(0), hello_at: at(0), ...worker});
      const [slot] = slotOf(before.name, 'wanted', new Map([[before.name, before]]));
      const nodes = sortNodes([aTpu({state: node})], {deployment: 'gleaner', unreachable: [], at_ms: T0});
      const inputs = {...INPUTS, nodes, pool: {...INPUTS.pool, source_version: 2}};
      const {worker: after} = decideSlot(slot ?? assert.fail(), before, inputs, aConfig().limits, T0, 'ends');
      assert.equal(after.source_version, version);
    });
});
