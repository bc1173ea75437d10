/** The hello of a host: its secret is bound to its incarnation, and every later request of the host must have this secret. */
import {hasHost} from '../../domain/worker/hosts.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid, workerRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {isTicketOf} from '../workers/tickets.ts';
import {
  type Asked,
  contradicts,
  impostor,
  isAhead,
  isCurrent,
  notWanted,
  ok,
  refused,
  say,
  speaksFor,
  unknown,
  type WorkerAnswer,
} from './answers.ts';

type Hello = Asked<'hello'>;

/** Second claims of a host within this time are one event, because a thief may repeat its claim. */
const EVENT_EVERY_MS = 3_600_000;

/**
 * Binds the secret of a host that has none, if the ticket is right. The secret that is bound already is success without a ticket: a
 * host repeats its hello at every boot, also after a change of the key.
 */
export async function bindHost(deps: Deps, request: Hello): Promise<WorkerAnswer> {
  const {heartbeat_s, identity} = deps.config;
  if (!hasHost(request.host)) return noSuchHost(deps, request);
  let complaint: string | undefined;
  const answer = await deps.store.transaction(async (tx): Promise<WorkerAnswer> => {
    complaint = undefined;
    const worker = await skipIfInvalid(deps.log, () => workerRecords.get(tx, request.worker));
    if (contradicts(worker, request)) return impostor(deps, 'bind a secret', request);
    if (!worker || isAhead(request, worker)) return ok({...say('continue', unknown(request)), heartbeat_s});
    if (!isCurrent(worker, request)) return ok({...say('exit', notWanted(request)), heartbeat_s});
    if (speaksFor(worker, request)) {
      const named = withHostName(worker, request);
      if (named !== worker) workerRecords.set(tx, named);
      return ok({...say('continue', ''), heartbeat_s});
    }
    const {host, secret_sha256} = request;
    const who = `host ${host} of ${worker.name}, incarnation ${worker.incarnation}`;
    if (!isTicketOf(identity, 'worker-api', worker, request.ticket)) {
      complaint = `Refused to bind a secret: the ticket is not that of ${who}`;
      return refused(`the ticket is not that of ${who}`);
    }
    if (worker.host_secrets[host] !== undefined) {
      complaint = `Refused to bind a second secret to ${who}: its ticket may be stolen, or its disk was replaced. Publish recreate for ${worker.name}`;
      const now = deps.now();
      const hour = now - (now % EVENT_EVERY_MS);
      recordEvent(tx, {kind: 'worker', worker: worker.name, text: complaint}, now, hour);
      return refused(`another secret is bound to ${who}`);
    }
    const bound = {...worker, host_secrets: {...worker.host_secrets, [host]: secret_sha256}};
    workerRecords.set(tx, withHostName(bound, request));
    return ok({...say('continue', ''), heartbeat_s});
  });
  const {worker, incarnation, host} = request;
  if (complaint) deps.log('ERROR', complaint, {worker, incarnation, host});
  return answer;
}

/** The worker with the name and the address of the host. The same object if they are known, or if the host does not say them. */
function withHostName(worker: Worker, {host, hostname, address}: Hello): Worker {
  const known = worker.hosts[host];
  const next = {
    ...known,
    hostname: hostname ?? known?.hostname ?? '',
    address: address ?? known?.address ?? '',
  };
  if (known ? known.hostname === next.hostname && known.address === next.address : !hostname && !address)
    return worker;
  return {...worker, hosts: {...worker.hosts, [host]: next}};
}

/** A ticket is good for each host of its node: a number beyond them would bind a second secret with a stolen ticket. */
function noSuchHost({log}: Deps, {worker, incarnation, host}: Hello): WorkerAnswer {
  const reason = `the node of ${worker} has no host ${host}`;
  log('ERROR', `Refused to bind a secret: ${reason}`, {worker, incarnation, host});
  return refused(reason);
}
