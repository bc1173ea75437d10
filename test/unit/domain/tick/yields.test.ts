import assert from 'node:assert/strict';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import {planYields} from '../../../../shared/domain/tick/yields.ts';
import {aConfig, aRun, at, aWorker, T0} from '../../../world/builders.ts';

const NOW = T0 + 600_000;
const RUNS = [aRun({run: 'low', priority: -1}), aRun(), aRun({run: 'bound', affinity: 'fixed'})];

function theWorker(number: number, work: string | null, changes: Partial<Worker> = {}): Worker {
  return aWorker({
    ...{name: `tpu-us-central1-a-${number}`, phase: work ? 'working' : 'idle', work, epoch: work ? 1 : null},
    ...{heartbeat_at: at(599), claimed_at: at(599)},
    ...changes,
  });
}

const AT_WORK = [theWorker(0, 'my-run/000'), theWorker(1, 'low/000'), theWorker(2, 'bound/000')];
const SECOND = {worker: 'tpu-us-central1-a-1', work: 'low/000'};

describe('a job that has waited for job_wait_s', () => {
  const cases: {name: string; waits_s?: number; workers?: Worker[]; silent?: string[]; then: object[]}[] = [
    {name: 'gets the worker of the run of least priority', then: [{...SECOND, job: 'late'}]},
    {name: 'gets none before', waits_s: 100, then: []},
    {
      name: 'gets the worker of a bound stream where there is no other',
      workers: AT_WORK.slice(2),
      then: [{worker: 'tpu-us-central1-a-2', work: 'bound/000', job: 'late'}],
    },
    {
      name: 'waits for the worker that gives its stream back already',
      workers: [AT_WORK[1], theWorker(3, 'my-run/001', {yields_to: 'late'})].filter(x => x !== undefined),
      then: [],
    },
    {name: 'waits for an idle worker', workers: [...AT_WORK, theWorker(3, null)], then: []},
    {
      name: 'waits for a worker of a paused run, which drains',
      workers: [...AT_WORK, theWorker(3, 'my-run/001', {drains: true})],
      then: [],
    },
    {
      name: 'waits neither for a silent idle worker nor for one that is replaced',
      workers: [
        ...AT_WORK,
        theWorker(3, null),
        theWorker(4, null, {recreate: true}),
        theWorker(5, null, {fault: 'no chips'}),
      ],
      silent: ['tpu-us-central1-a-3'],
      then: [{...SECOND, job: 'late'}],
    },
    {name: 'gets no worker that has a job', workers: [theWorker(0, 'job:other')], then: []},
  ];
  for (const {name, waits_s = 121, workers = AT_WORK, silent = [], then} of cases)
    it(name, () => {
      const longest = {job: 'late', since_at: at(600 - waits_s)};
      const snapshot = {
        ...{pool: aConfig().pool, jobs: {waiting: 1, longest}, runs: RUNS},
        workers: new Map(workers.map(worker => [worker.name, worker])),
      };
      assert.deepEqual(planYields(snapshot, new Set(silent), new Map(), NOW), then);
    });

  it('gets another worker than one that a job of several slices gathers', () => {
    const longest = {job: 'late', since_at: at(479)};
    const snapshot = {pool: aConfig().pool, jobs: {waiting: 2, longest}, runs: RUNS};
    const workers = new Map(AT_WORK.map(worker => [worker.name, worker]));
    const gathered = new Map([[SECOND.worker, 'large']]);
    assert.deepEqual(planYields({...snapshot, workers}, new Set(), gathered, NOW), [
      {worker: 'tpu-us-central1-a-0', work: 'my-run/000', job: 'late'},
      {...SECOND, job: 'large'},
    ]);
  });

  it('and waits no longer leaves its worker the stream', () => {
    const worker = theWorker(1, 'low/000', {yields_to: 'late'});
    const snapshot = {pool: aConfig().pool, jobs: {waiting: 0}, runs: RUNS};
    const workers = new Map([[worker.name, worker]]);
    assert.deepEqual(planYields({...snapshot, workers}, new Set(), new Map(), NOW), [{...SECOND, job: null}]);
  });
});
