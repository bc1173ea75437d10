import assert from 'node:assert/strict';
import {hasHost} from '../../../../shared/domain/worker/hosts.ts';

describe('a node', () => {
  for (const {host, has} of [
    {host: 0, has: true},
    {host: 1, has: false},
    {host: 999_999_999, has: false},
  ])
    it(`${has ? 'has' : 'does not have'} host ${host}`, () => {
      assert.equal(hasHost(host), has);
    });
});
