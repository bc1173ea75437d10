import assert from 'node:assert/strict';
import {laggardOf, laggardText, withLaggard} from '../../../../shared/domain/job/laggard.ts';
import {aWorker} from '../../../world/builders.ts';
import {aRunningJob} from '../../../world/scenes/jobs.ts';

/** A TPU of two hosts in these phases. */
const worker = (name: string, activity: string, phase: string) => {
  const rest = {hostname: '', address: '', heartbeat_at: null, source_version: null, source_error: null};
  return aWorker({
    ...{name: `tpu-us-central1-a-${name}`, activity},
    ...{host_count: 2, hosts: {1: {...rest, phase}}},
  });
};

describe('the host that the others wait for', () => {
  const lease = {worker: 'tpu-us-central1-a-0', incarnation: 1, epoch: 3, host_count: 2, members: []};
  const members = ['0', '1'].map(name => ({worker: `tpu-us-central1-a-${name}`, incarnation: 1}));
  const slices = {...lease, members};
  const ends = {1: {outcome: 'completed'}};
  const cases = [
    {name: 'is the only one at work', holders: [worker('0', 'waiting', 'running')], then: [1, false]},
    {name: 'is the one whose code has ended', holders: [worker('0', 'waiting', 'ended')], then: [1, true]},
    {
      name: 'is the one that reported its end',
      holders: [worker('0', 'waiting', 'idle')],
      ends,
      then: [1, true],
    },
    {name: 'is none while all compute', holders: [worker('0', 'running', 'running')], then: undefined},
    {name: 'is none while all wait', holders: [worker('0', 'waiting', 'waiting')], then: undefined},
    {
      name: 'is counted slice by slice',
      holders: [worker('1', 'running', 'waiting'), worker('0', 'waiting', 'waiting')],
      lease: slices,
      then: [2, false],
    },
    {
      name: 'is none where several are at work',
      holders: [worker('0', 'waiting', 'running'), worker('1', 'waiting', 'running')],
      lease: slices,
      then: undefined,
    },
    {name: 'is none of one host', holders: [], lease: {...lease, host_count: 1}, then: undefined},
  ];
  for (const {name, holders, then, ...given} of cases)
    it(name, () => {
      const found = laggardOf({lease, ends: {}, ...given}, holders);
      assert.deepEqual(found && [found.index, found.hasLeft], then);
    });

  it('is named where the attempt ends by its timeout, whichever host reports it', () => {
    const job = aRunningJob({lease, timeout: 60});
    const end = {outcome: 'failed', cause: 'timeout', error: 'too long; raise its timeout'} as const;
    const told = withLaggard(end, job, [worker('0', 'waiting', 'ended')]);
    const waits = 'after its timeout of 60 s the other hosts wait in JAX for host 1 of 2';
    assert.equal(told.error, `${waits}, which left early, although its code ended well`);
    assert.equal(withLaggard(end, job, [worker('0', 'running', 'running')]), end);
    const other = withLaggard({...end, cause: 'exit'}, job, [worker('0', 'waiting', 'ended')]);
    assert.equal(other.error, end.error);
    assert.match(laggardText({index: 1, processes: 2, hasLeft: false}), /which does not join them$/);
  });
});
