import assert from 'node:assert/strict';
import {heardFrom} from '../../../../shared/domain/worker/heartbeat.ts';
import {NO_WORK, type Phase} from '../../../../shared/domain/worker/worker.ts';
import {at, aWorker, T0} from '../../../support/builders.ts';
import {wellIn} from './lifecycle-cases.ts';

describe('a worker after a heartbeat', () => {
  const said = (activity: string, work: string | null) => ({...NO_WORK, activity, work});
  const cases: {given: Phase; says: [string, string | null]; then: Phase}[] = [
    {given: 'creating', says: ['setup', null], then: 'booting'},
    {given: 'creating', says: ['idle', null], then: 'idle'},
    {given: 'booting', says: ['setup', null], then: 'booting'},
    {given: 'booting', says: ['idle', null], then: 'idle'},
    {given: 'idle', says: ['loading', 'my-run/007'], then: 'working'},
    {given: 'working', says: ['uploading', 'my-run/007'], then: 'working'},
    {given: 'working', says: ['idle', null], then: 'idle'},
    {given: 'working', says: ['setup', null], then: 'booting'},
    {given: 'draining', says: ['running', 'my-run/007'], then: 'draining'},
    {given: 'draining', says: ['idle', null], then: 'draining'},
    {given: 'draining', says: ['setup', null], then: 'draining'},
  ];
  for (const {given, says, then} of cases)
    it(`a worker in phase ${given} that says "${says[0]}" ${says[1] ? 'at work ' : ''}becomes ${then}`, () => {
      const heard = heardFrom(wellIn(given), said(...says), T0 + 5000);
      assert.equal(heard.phase, then);
      assert.equal(heard.heartbeat_at, at(5));
      assert.equal(
        heard.phase_since_at,
        given === then ? at(0) : at(5),
        'the time in an unchanged phase continues',
      );
      assert.equal(heard.work, says[1]);
    });

  it('keeps the stream that it lost by its silence only if its machine has failed', () => {
    const suspect = {work: 'my-run/007', epoch: 3, total_shards: 1};
    for (const fault of [null, 'the disk is full'])
      assert.deepEqual(
        heardFrom(aWorker({phase: 'idle', suspect, fault}), said('idle', null), T0).suspect,
        fault === null ? null : suspect,
      );
  });

  for (const [provisioning, ready_s] of [
    ['node', 0],
    ['queued-resource', 9000],
  ] as const)
    it(`an unseen node requested as ${provisioning} is billed from second ${ready_s} after its first heartbeat`, () => {
      const given = aWorker({phase: 'creating', provisioning});
      const said = {...NO_WORK, activity: 'setup'};
      assert.equal(heardFrom(given, said, T0 + 9_000_000).ready_at, at(ready_s));
      assert.equal(heardFrom(given, said, T0 + 200_000).ready_at, at(200));
    });
});
