import assert from 'node:assert/strict';
import {Rejected} from '../../../../shared/contracts/errors.ts';
import {parseValue, workerRequest} from '../../../../shared/contracts/messages/schemas.ts';
import type {Worker} from '../../../../shared/domain/records/worker.ts';
import {decideFailedBoot} from '../../../../shared/domain/requests/heard-from.ts';
import {decideHeartbeat} from '../../../../shared/domain/requests/heartbeat.ts';
import {causeOfDeath, type Death} from '../../../../shared/domain/worker/liveness.ts';
import {at, aWorker, found, LIMITS, moment, T0} from '../../../world/builders.ts';
import {HOLDER} from '../../../world/scenes/jobs.ts';

const BOOTING: Partial<Worker> = {
  ...{phase: 'booting', activity: 'setup', boot_step: 'environment'},
  ...{hello_at: at(0), heartbeat_at: at(0)},
};

describe('a host that sent heartbeats and never started its agent', () => {
  const cases: {name: string; given: Partial<Worker>; after_s: number; then: Death | undefined}[] = [
    {name: 'boots on', given: {}, after_s: LIMITS.silent_s, then: undefined},
    {
      name: 'has a failed boot after silent_s, which no silence guard holds',
      given: {},
      after_s: LIMITS.silent_s + 1,
      then: {kind: 'boot', cause: 'it has said nothing for 240 s in its boot (environment)'},
    },
    {
      name: 'has a failed boot after setup_s',
      given: {heartbeat_at: at(LIMITS.setup_s)},
      after_s: LIMITS.setup_s + 1,
      then: {kind: 'boot', cause: 'its boot took longer than 1800 s (environment)'},
    },
    {
      name: 'has a failed boot with the reason that it reports',
      given: {fault: 'the disk is full'},
      after_s: 1,
      then: {kind: 'boot', cause: 'its boot failed: the disk is full'},
    },
    {
      name: 'is a broken machine where its chips do not open',
      given: {fault: 'open(/dev/vfio/0): busy'},
      after_s: 1,
      then: {kind: 'broken', cause: 'its agent said: open(/dev/vfio/0): busy'},
    },
    {
      name: 'is silent if its agent was up before a restart',
      given: {agent_at: at(-60)},
      after_s: LIMITS.silent_s + 1,
      then: {kind: 'silent', cause: 'it has said nothing for 240 s'},
    },
  ];
  for (const {name, given, after_s, then} of cases)
    it(name, () => {
      const worker = aWorker({...BOOTING, ...given, provider_state: 'READY', health: 'HEALTHY'});
      const death = causeOfDeath(worker, found('READY'), LIMITS, moment(T0 + after_s * 1000));
      assert.deepEqual(death, then);
    });
});

describe('the report of a failed boot', () => {
  it('keeps the work and the step of the worker, and asks for a tick', () => {
    const worker = aWorker({...BOOTING, work: 'my-run/007', epoch: 3});
    const {writes, wakes} = decideFailedBoot(worker, {host: 0, reason: 'the disk is full'}, T0 + 1000);
    const {fault, work, boot_step, heartbeat_at, phase} = writes?.worker ?? {};
    assert.deepEqual(
      [fault, work, boot_step, heartbeat_at, phase, wakes],
      ['the disk is full', 'my-run/007', 'environment', at(1), 'booting', true],
    );
  });

  it('changes nothing after an earlier report', () => {
    const worker = aWorker({...BOOTING, fault: 'the disk is full'});
    const {writes, wakes} = decideFailedBoot(worker, {host: 0, reason: 'another'}, T0);
    assert.deepEqual([writes, wakes], [undefined, undefined]);
  });

  it('keeps at most 2000 characters of the reason', () => {
    const {writes} = decideFailedBoot(aWorker(BOOTING), {host: 0, reason: 'x'.repeat(4000)}, T0);
    assert.equal(writes?.worker?.fault?.length, 2000);
  });
});

describe('the request setup-failed', () => {
  const parse = (reason: unknown) =>
    parseValue(workerRequest, {action: 'setup-failed', ...HOLDER, host: 0, reason}, 'a request');

  it('is cleaned of characters that control a terminal or start a line', () => {
    const request = parse('no\u001b[31m room\n\ud800\u202e') as {reason: string};
    assert.equal(request.reason, 'no\ufffd[31m room\ufffd\ufffd\ufffd');
  });

  for (const reason of ['', 'x'.repeat(4001), null, {}])
    it(`with a reason of ${JSON.stringify(reason).length} characters of JSON is refused`, () => {
      assert.throws(() => parse(reason), Rejected);
    });
});

describe('the step of a boot', () => {
  for (const [phase, step, boot_step, agent_at] of [
    ['setup', 'environment', 'environment', null],
    ['setup', undefined, null, null],
    ['idle', undefined, null, at(0)],
  ] as const)
    it(`${step ?? 'without a name'} in phase ${phase} is stored as ${boot_step}`, () => {
      const request = {...HOLDER, host: 0, phase, step, lease: null, progress: null};
      const worker = aWorker({...BOOTING, boot_step: 'bundle'});
      const {writes} = decideHeartbeat({worker}, request, T0, {lease_s: 240, region: null});
      const {boot_step: stored, agent_at: spoke_at} = writes?.worker ?? {};
      assert.deepEqual([stored, spoke_at], [boot_step, agent_at]);
    });
});
