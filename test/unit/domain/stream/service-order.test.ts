import assert from 'node:assert/strict';
import type {Run} from '../../../../shared/domain/records/run.ts';
import {byPreference, inServiceOrder} from '../../../../shared/domain/stream/service-order.ts';
import {aRun, at, aWorker} from '../../../world/builders.ts';

describe('the preference between runs', () => {
  const run = (changes: Partial<Run>) => aRun({run: 'r', spec_hash: 's', spec: {model: 'm'}, ...changes});
  const preferences: {name: string; first: Partial<Run>; second: Partial<Run>}[] = [
    {name: 'a higher priority before a loaded spec', first: {priority: 1}, second: {spec_hash: 'loaded'}},
    {name: 'a higher priority before an older run', first: {priority: 1, created_at: at(9)}, second: {}},
    {
      name: 'the loaded spec before an older run',
      first: {spec_hash: 'loaded', created_at: at(9)},
      second: {},
    },
    {
      name: 'the loaded model before an older run',
      first: {spec: {model: 'loaded model'}, created_at: at(9)},
      second: {},
    },
    {
      name: 'the loaded spec before another spec of its model',
      first: {spec_hash: 'loaded', spec: {model: 'loaded model'}, created_at: at(9)},
      second: {spec: {model: 'loaded model'}},
    },
    {name: 'priority 0 before a negative priority', first: {}, second: {priority: -1}},
    {name: 'an older run', first: {run: 'z'}, second: {created_at: at(1)}},
    {name: 'the run with the first name of two runs of one moment', first: {run: 'a'}, second: {run: 'b'}},
  ];
  for (const {name, first, second} of preferences)
    it(`a worker gets ${name}`, () => {
      const [a, b] = [run(first), run(second)];
      assert.deepEqual([b, a].sort(byPreference({model: 'loaded model', spec_hash: 'loaded'})), [a, b]);
    });
});

describe('the order in which runs serve a worker', () => {
  const worker = aWorker({usd_per_hour: 1, bundle: 'deployed'});
  const orders: {name: string; runs: Partial<Run>[]; then: string[]}[] = [
    {
      name: 'a run without a pending stream comes last, also with a higher priority',
      runs: [
        {run: 'served', priority: 9, streams_in_progress: 1},
        {run: 'open', streams_pending: 1},
      ],
      then: ['open', 'served'],
    },
    {
      name: 'a run of fixed affinity keeps its place without a pending stream',
      runs: [
        {run: 'open', streams_pending: 1},
        {run: 'fixed', priority: 9, affinity: 'fixed', streams_in_progress: 1},
      ],
      then: ['fixed', 'open'],
    },
    {
      name: 'a run whose budget does not pay for another worker is left out',
      runs: [{run: 'spent', budget_usd: 0}, {run: 'open'}],
      then: ['open'],
    },
    {
      name: 'the oldest run of equal rank comes first for every worker',
      runs: [{run: 'young', created_at: at(9), streams_pending: 99}, {run: 'old'}],
      then: ['old', 'young'],
    },
  ];
  for (const {name, runs, then} of orders)
    it(name, () => {
      const order = inServiceOrder(runs.map(aRun), worker, null, 'asker');
      assert.deepEqual(
        order.map(({run}) => run),
        then,
      );
    });
});
