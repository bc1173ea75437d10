import assert from 'node:assert/strict';
import {byPreference, type Candidate} from '../../../../shared/domain/stream/lease.ts';
import {at} from '../../../support/builders.ts';

describe('the preference between streams', () => {
  const candidate = (changes: Partial<Candidate>): Candidate => ({
    run: 'r',
    spec_hash: 's',
    model: 'm',
    priority: 0,
    run_created_at: at(0),
    stream: '000',
    own: false,
    ...changes,
  });
  const preferences: {name: string; first: Partial<Candidate>; second: Partial<Candidate>}[] = [
    {
      name: 'its own stream from before a restart, before a loaded spec',
      first: {own: true, spec_hash: 'other'},
      second: {spec_hash: 'loaded'},
    },
    {name: 'a higher priority before a loaded spec', first: {priority: 1}, second: {spec_hash: 'loaded'}},
    {name: 'a higher priority before an older run', first: {priority: 1, run_created_at: at(9)}, second: {}},
    {
      name: 'the loaded spec before an older run',
      first: {spec_hash: 'loaded', run_created_at: at(9)},
      second: {},
    },
    {
      name: 'the loaded model before an older run',
      first: {model: 'loaded model', run_created_at: at(9)},
      second: {},
    },
    {
      name: 'the loaded spec before another spec of its model',
      first: {spec_hash: 'loaded', model: 'loaded model', run_created_at: at(9)},
      second: {model: 'loaded model'},
    },
    {name: 'priority 0 before a negative priority', first: {}, second: {priority: -1}},
    {name: 'an older run before a lower index', first: {stream: '009'}, second: {run_created_at: at(1)}},
    {name: 'the lower index by number, not by text', first: {stream: '999'}, second: {stream: '1000'}},
    {
      name: 'the run with the first name of two runs of one moment',
      first: {run: 'a', stream: '009'},
      second: {run: 'b'},
    },
  ];
  for (const {name, first, second} of preferences)
    it(`a worker gets ${name}`, () => {
      const [a, b] = [candidate(first), candidate(second)];
      assert.deepEqual([b, a].sort(byPreference({model: 'loaded model', spec_hash: 'loaded'})), [a, b]);
    });
});
