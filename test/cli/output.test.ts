import assert from 'node:assert/strict';
import {dollarText} from '../../cli/output.ts';

describe('dollars', () => {
  for (const [usd, text] of [
    [0, '$0.00'],
    [1.236, '$1.24'],
    [0.01, '$0.01'],
    [0.00314, '$0.0031'],
    [0.00000042, '$0.00000042'],
    [12345.6, '$12345.60'],
  ] as const)
    it(`${usd} are ${text}`, () => assert.equal(dollarText(usd), text));
});
