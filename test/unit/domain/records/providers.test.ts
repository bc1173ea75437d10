import assert from 'node:assert/strict';
import {providerProblem, type Terms} from '../../../../shared/domain/records/providers.ts';

const TERMS: Terms = {provider: 'compute-engine', provisioning: 'node', spot: true, disk_gb: 100};

describe('the terms of a pool', () => {
  for (const [name, changes, says] of [
    ['an instance at once', {}, undefined],
    ['a flex-start instance on demand', {provisioning: 'flex-start', spot: false}, undefined],
    ['a flex-start instance on spot', {provisioning: 'flex-start'}, /set spot to false/],
    ['an instance in a queue', {provisioning: 'auto'}, /no queued resources/],
    ['a node with a disk', {provider: 'tpu-api'}, /leave disk_gb out/],
    ['a flex-start node', {provider: 'tpu-api', disk_gb: null, provisioning: 'flex-start'}, /needs provider/],
  ] as [string, Partial<Terms>, RegExp | undefined][])
    it(`${says ? 'refuse' : 'allow'} ${name}`, () => {
      const problem = providerProblem({...TERMS, ...changes}, ['tpu-api', 'compute-engine']);
      if (says) assert.match(problem ?? '', says);
      else assert.equal(problem, undefined);
    });

  it('refuse a provider that the deployment lacks', () =>
    assert.match(providerProblem(TERMS, ['tpu-api']) ?? '', /GLEANER_PROVIDERS/));
});
