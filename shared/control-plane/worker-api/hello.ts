import {decideHello, type HelloProof} from '../../domain/worker/hello.ts';
import type {RequestDecision} from '../../domain/worker/requests.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import type {Deps} from '../deps.ts';
import {isTicketOf} from '../workers/tickets.ts';
import type {AgentRequest} from './answers.ts';
import {speaksFor} from './authenticate.ts';

/** Binds the secret of a host by the ticket of its node. */
export async function bindHost(
  {config}: Deps,
  _: Transaction,
  worker: Worker,
  request: AgentRequest<'hello'>,
  now: number,
): Promise<RequestDecision> {
  const hasTicket = () => isTicketOf(config.identity, 'worker-api', worker, request.ticket);
  const proof: HelloProof = speaksFor(worker, request) ? 'secret' : hasTicket() ? 'ticket' : 'none';
  return decideHello({worker, proof}, request, now);
}
