import assert from 'node:assert/strict';
import {Scratch} from '../../support/machine/a-cloud.ts';

describe('A fault for an unknown TPU', () => {
  const scratch = new Scratch(after);

  it('a fault for an unknown TPU is refused with a sentence about the TPUs of the pool', async () => {
    const cloud = await scratch.cloud();
    await assert.rejects(cloud.fault('preempt', 'nope'), {
      message: /^Unknown TPU "nope"; the cloud has no TPU now; `gleaner local fault help` lists the faults$/,
    });
  });
});
