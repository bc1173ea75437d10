/** Tickets: a host proves with the ticket of its node that it is a host of this incarnation. */
import {createHmac} from 'node:crypto';
import {isSameText} from '../../contracts/constant-time.ts';
import {type IdentitySettings, required} from '../../contracts/identity-settings.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import type {Worker} from '../../domain/worker/worker.ts';

/** Key of the lease of this epoch of a stream. The time of its document makes another one for an equal stream after a lost database. */
export function leaseKey(
  identity: IdentitySettings,
  user: string,
  {run, stream, created_at}: Stream,
  epoch: number,
) {
  const {ticket_key} = required(identity, user, ['ticket_key']);
  const lease = ['gleaner-lease/1', identity.deployment, run, stream, created_at, epoch].join('\n');
  return createHmac('sha256', ticket_key).update(lease).digest('base64url');
}

type Life = Pick<Worker, 'name' | 'incarnation' | 'born_at'>;

/**
 * The ticket of an incarnation, for the metadata of its node. A repeated create makes the same ticket. The time of birth makes another
 * one for an equal number after a lost database.
 */
export function ticketOf(identity: IdentitySettings, user: string, worker: Life): string {
  const {name, incarnation, born_at} = worker;
  const {ticket_key} = required(identity, user, ['ticket_key']);
  const life = ['gleaner-ticket/1', identity.deployment, name, incarnation, born_at].join('\n');
  return createHmac('sha256', ticket_key).update(life).digest('base64url');
}

export function isTicketOf(identity: IdentitySettings, user: string, life: Life, given: string): boolean {
  return isSameText(ticketOf(identity, user, life), given);
}
