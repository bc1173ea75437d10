/** The hello of a host binds its secret to its incarnation. Every later request of the host must carry this secret. */

import {workerEvent} from '../billing/cost.ts';
import {NO_HOST, type Worker} from '../records/worker.ts';
import {advise, type RequestDecision, refuse} from './requests.ts';

export type Hello = {
  host: number;
  secret_sha256: string;
  hostname?: string | undefined;
  address?: string | undefined;
};

/** Proof that a hello comes from the host: the secret already bound, the ticket of its node, or nothing. */
export type HelloProof = 'secret' | 'ticket' | 'none';

/** Second claims of a host within this time are one event, because a thief may repeat them. */
const EVENT_EVERY_MS = 3_600_000;

/**
 * Binds the secret of a host that has none, if the ticket is right. A hello with the secret already bound needs no ticket, because a host
 * repeats its hello at every boot, even after a change of the key.
 */
export function decideHello(
  {worker, proof}: {worker: Worker; proof: HelloProof},
  request: Hello,
  now: number,
): RequestDecision {
  const {host, secret_sha256} = request;
  const answer = advise('continue', '');
  if (proof === 'secret') {
    const named = withHostName(worker, request);
    return named === worker ? {answer} : {answer, writes: {worker: named}};
  }
  const who = `host ${host} of ${worker.name}, incarnation ${worker.incarnation}`;
  if (proof === 'none') {
    const reason = `the ticket is not that of ${who}`;
    return refuse(reason, `Refused to bind a secret: ${reason}`);
  }
  if (worker.host_secrets[host] !== undefined) {
    const text = `Refused to bind a second secret to ${who}: its ticket may be stolen, or its disk was replaced. Publish recreate for ${worker.name}`;
    return {
      ...refuse(`another secret is bound to ${who}`, text),
      writes: {
        events: [workerEvent(worker, text)],
        events_since: now - (now % EVENT_EVERY_MS),
      },
    };
  }
  const bound = {...worker, host_secrets: {...worker.host_secrets, [host]: secret_sha256}};
  return {answer, writes: {worker: withHostName(bound, request)}};
}

/** The worker with the name and the address of the host. Returns the same object if they are known already, or the hello has neither. */
function withHostName(worker: Worker, {host, hostname, address}: Hello): Worker {
  const before = worker.hosts[host] ?? NO_HOST;
  const after = {...before, hostname: hostname ?? before.hostname, address: address ?? before.address};
  if (before.hostname === after.hostname && before.address === after.address) return worker;
  return {...worker, hosts: {...worker.hosts, [host]: after}};
}
