import assert from 'node:assert/strict';
import {NO_HOST} from '../../../../shared/domain/records/worker.ts';
import {hasHost, sliceOrder} from '../../../../shared/domain/worker/hosts.ts';

describe('a node', () => {
  for (const {host_count, host, has} of [
    {host_count: undefined, host: 0, has: true},
    {host_count: undefined, host: 1, has: false},
    {host_count: 1, host: 1, has: false},
    {host_count: 4, host: 3, has: true},
    {host_count: 4, host: 4, has: false},
  ])
    it(`of ${host_count ?? 'an unknown number of'} hosts ${has ? 'has' : 'does not have'} host ${host}`, () => {
      assert.equal(hasHost(host_count === undefined ? undefined : {host_count}, host), has);
    });

  it('gives each host the addresses in the order of their numbers', () => {
    const hosts = {1: {...NO_HOST, address: '10.0.0.2'}, 0: {...NO_HOST, address: '10.0.0.1'}};
    const {host, addresses} = sliceOrder([{host_count: 3, hosts}], 0, 1);
    assert.deepEqual({host, addresses}, {host: 1, addresses: ['10.0.0.1', '10.0.0.2', '']});
  });
});
