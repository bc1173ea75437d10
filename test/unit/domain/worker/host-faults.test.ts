import assert from 'node:assert/strict';
import {decideWorker} from '../../../../shared/domain/worker/lifecycle.ts';
import {isBadHost} from '../../../../shared/domain/worker/provider-states.ts';
import {at, found, moment, T0} from '../../../world/builders.ts';
import {decide, LIMITS, wellIn} from './provider-cases.ts';

describe('faults that an agent reports of its host', () => {
  const texts = [
    "Couldn't open iommu group /dev/vfio/3: Device or resource busy",
    'open(/dev/vfio/0): Device or resource busy: Device or resource busy',
    'INTERNAL: Failed to initialize TPU system: resource busy',
    'UNKNOWN: TPU initialization failed: No ba16c7433 device found.',
    'RuntimeError: No accelerator found. Run on a TPU',
    'ABORTED: The TPU is already in use by process with pid 4242. Not attempting to load libtpu.so in this process.',
    'INTERNAL: START_SESSION failed. Max # of tries(=3) exhausted.',
    'RuntimeError: the sum of 8 ones over 2 of 2 hosts is 7, so TPU not available',
    "RuntimeError: Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: open(/dev/vfio/0)",
  ];
  for (const text of texts)
    it(`the fault "${text.slice(0, 40)}" means a broken machine`, () => {
      const fault = `Failed to extract stream 007: ${text}`;
      assert.ok(isBadHost(fault));
      const {worker, death} = decide(wellIn('idle', {fault}), found('READY'));
      assert.deepEqual([worker.phase, death?.kind], ['deleting', 'broken']);
      assert.match(death?.cause ?? '', /its agent said: Failed to extract/);
    });

  it('a runtime that fails to load is no broken machine: every machine has the same', () => {
    const text = "Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so: no such file";
    assert.ok(!isBadHost(text));
  });

  it('a machine with another fault is replaced as crashed', () => {
    const {worker, death} = decide(wellIn('idle', {fault: 'the disk is full'}), found('READY'));
    assert.deepEqual([worker.phase, death?.kind], ['deleting', 'crashed']);
  });

  it('the next incarnation starts without faults and symptoms', () => {
    const fault = texts[0] ?? '';
    const seen = found('READY', {symptoms: [{symptom: 'LOW_MEMORY', details: '', created_at: at(5)}]});
    const dead = decide(wellIn('working', {fault}), seen, 10).worker;
    const gone = decideWorker(dead, {kind: 'absent'}, 'wanted', LIMITS, moment(T0 + 60_000)).worker;
    const {worker} = decideWorker(gone, {kind: 'absent'}, 'wanted', LIMITS, moment(T0 + 120_000));
    assert.deepEqual(
      [worker.phase, worker.fault, worker.symptoms, worker.provider_state, worker.provider_since_at],
      ['creating', null, [], null, null],
    );
  });
});
