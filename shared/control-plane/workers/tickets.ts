/** Tickets: with the ticket of its node, a host proves that it belongs to this incarnation. */
import {createHmac} from 'node:crypto';
import {isSameText} from '../../contracts/constant-time.ts';
import {type IdentitySettings, required} from '../../contracts/settings/identity-settings.ts';
import type {Stream} from '../../domain/records/stream.ts';
import type {Worker} from '../../domain/records/worker.ts';

/** Key of the lease of this epoch of a stream. It depends on the document's time, so an equal stream has another key after a lost database. */
export function leaseKey(identity: IdentitySettings, {run, stream, created_at}: Stream, epoch: number) {
  return signed(identity, 'worker-api', 'gleaner-lease/1', [run, stream, created_at, epoch]);
}

type Life = Pick<Worker, 'name' | 'incarnation' | 'born_at'>;

/**
 * The ticket of an incarnation, for the metadata of its node. A repeated create makes the same ticket. It includes the time of birth, so that
 * an equal number gets another ticket after a lost database.
 */
export function ticketOf(identity: IdentitySettings, user: string, worker: Life): string {
  const {name, incarnation, born_at} = worker;
  return signed(identity, user, 'gleaner-ticket/1', [name, incarnation, born_at]);
}

function signed(identity: IdentitySettings, user: string, kind: string, facts: (string | number | null)[]) {
  const {ticket_key} = required(identity, user, ['ticket_key']);
  const text = [kind, identity.deployment, ...facts].join('\n');
  return createHmac('sha256', ticket_key).update(text).digest('base64url');
}

export function isTicketOf(identity: IdentitySettings, life: Life, given: string): boolean {
  return isSameText(ticketOf(identity, 'worker-api', life), given);
}
