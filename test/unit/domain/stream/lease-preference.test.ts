import assert from 'node:assert/strict';
import type {Run} from '../../../../shared/domain/run/run.ts';
import {byPreference} from '../../../../shared/domain/stream/service-order.ts';
import {aRun, at} from '../../../support/builders.ts';

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
