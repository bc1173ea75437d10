import assert from 'node:assert/strict';
import {NO_HOST, type Worker} from '../../../../shared/domain/records/worker.ts';
import {decideHello, type Hello, type HelloProof} from '../../../../shared/domain/requests/hello.ts';
import {aWorker, T0} from '../../../world/builders.ts';

describe('the decision about a hello', () => {
  const [secret_sha256, other] = ['a'.repeat(64), 'b'.repeat(64)];
  const named = {...NO_HOST, hostname: 'host-0', address: '10.0.0.1'};
  const cases: {
    name: string;
    given: Partial<Worker>;
    proof: HelloProof;
    says?: Partial<Hello>;
    then: {status: number; writes?: Partial<Worker>};
  }[] = [
    {
      name: 'a right ticket binds the secret of a host that has none',
      given: {host_secrets: {}},
      proof: 'ticket',
      then: {status: 200, writes: {host_secrets: {0: secret_sha256}, hosts: {}}},
    },
    {
      name: 'a right ticket records the name and the address of the host',
      given: {host_secrets: {}},
      proof: 'ticket',
      says: named,
      then: {status: 200, writes: {host_secrets: {0: secret_sha256}, hosts: {0: named}}},
    },
    {
      name: 'a right ticket replaces no secret',
      given: {host_secrets: {0: other}},
      proof: 'ticket',
      then: {status: 403},
    },
    {name: 'a wrong ticket binds no secret', given: {host_secrets: {}}, proof: 'none', then: {status: 403}},
    {
      name: 'the bound secret needs no ticket and changes no document',
      given: {host_secrets: {0: secret_sha256}, hosts: {0: named}},
      proof: 'secret',
      says: named,
      then: {status: 200},
    },
    {
      name: 'the bound secret changes only the address',
      given: {host_secrets: {0: secret_sha256}, hosts: {0: named}},
      proof: 'secret',
      says: {address: '10.0.0.2'},
      then: {status: 200, writes: {hosts: {0: {...named, address: '10.0.0.2'}}}},
    },
  ];
  for (const {name, given, proof, says, then} of cases)
    it(name, () => {
      const worker = aWorker({phase: 'booting', ...given});
      const decision = decideHello({worker, proof}, {host: 0, secret_sha256, ...says}, T0);
      assert.equal(decision.answer.status, then.status);
      assert.deepEqual(decision.writes?.worker, then.writes && {...worker, ...then.writes});
      assert.equal(decision.complaint !== undefined, then.status === 403, 'a refusal is logged');
    });

  it('binds one secret to each host of a node', () => {
    const worker = aWorker({host_count: 2, host_secrets: {0: other, 1: other}});
    const hello = {host: 1, secret_sha256};
    const statusOf = (given: Worker) =>
      decideHello({worker: given, proof: 'ticket'}, hello, T0).answer.status;
    assert.deepEqual([statusOf(worker), statusOf({...worker, host_secrets: {0: other}})], [403, 200]);
  });

  it('is one event an hour about a second secret', () => {
    const state = {worker: aWorker({host_secrets: {0: other}}), proof: 'ticket' as const};
    const eventAt = (now: number) => decideHello(state, {host: 0, secret_sha256}, now).writes;
    const hour = T0 - (T0 % 3_600_000);
    assert.match(
      eventAt(hour)?.events?.[0]?.text ?? '',
      /second secret.*Publish recreate for tpu-us-central1-a-0/,
    );
    assert.deepEqual(eventAt(hour + 3_599_999), eventAt(hour));
    assert.notDeepEqual(eventAt(hour + 3_600_000), eventAt(hour));
  });
});
