/** Requests of agents: the checks of their senders, and the answers. */
import {hash} from 'node:crypto';
import {isSameText} from '../../contracts/constant-time.ts';
import type {WorkerRequest} from '../../contracts/schemas.ts';
import type {Pool} from '../../domain/fleet/pool.ts';
import {retryIn} from '../../domain/stream/spread.ts';
import {isAlive, type Worker} from '../../domain/worker/worker.ts';
import {poolOf} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';

export type WorkerAnswer = {status: 200 | 403 | 409; body: object};

/** A request, and the sha256 of the secret of the host that sent it. */
export type Asked<Action extends WorkerRequest['action']> = Extract<WorkerRequest, {action: Action}> & {
  secret_sha256: string;
};

type Sender = {worker: string; incarnation: number; host: number; secret_sha256: string};

/** True for the secret of a host: 256 random bits in hexadecimal digits. */
export function isSecret(text: string | undefined): text is string {
  return text !== undefined && /^[0-9a-f]{64}$/.test(text);
}

/** The form in which the document of a worker keeps the secret of a host. */
export function secretHash(secret: string): string {
  return hash('sha256', secret);
}

/** True if the secret is bound to the host and the incarnation that the request names. A host that has not said hello has none. */
export function speaksFor(worker: Worker, {incarnation, host, secret_sha256}: Sender): boolean {
  const bound = worker.host_secrets[host];
  if (bound === undefined || worker.incarnation !== incarnation) return false;
  return isSameText(bound, secret_sha256);
}

/** True if the secret is bound to this worker, and the request names another incarnation or another host than its own. */
export function contradicts(worker: Worker | undefined, sender: Sender): boolean {
  if (!worker || speaksFor(worker, sender)) return false;
  return Object.values(worker.host_secrets).some(bound => isSameText(bound, sender.secret_sha256));
}

/** Refuses a request in the name of another host. The refusal changes no document. */
export function impostor({log}: Pick<Deps, 'log'>, action: string, sender: Sender): WorkerAnswer {
  const {worker, incarnation, host} = sender;
  const who = `host ${host} of ${worker}, incarnation ${incarnation}`;
  log('ERROR', `Refused to ${action}: the secret of the request is not that of ${who}`, {
    worker,
    incarnation,
    host,
  });
  return refused(`the secret is not that of ${who}`);
}

/** Refuses a request with 403 and the order to exit. The agent says hello once more, and then ends. */
export function refused(reason: string): WorkerAnswer {
  return {status: 403, body: {action: 'exit', reason, error: reason}};
}

/** True if the request comes from the slot's incarnation. A `creating` slot counts: its node can boot before a tick sees it READY. */
export function isCurrent(worker: Worker | undefined, request: {incarnation: number}): worker is Worker {
  return (
    worker !== undefined &&
    worker.incarnation === request.incarnation &&
    (isAlive(worker) || worker.phase === 'creating')
  );
}

/** True if no document has asked for the incarnation: the database was restored from a backup older than the worker. */
export function isAhead(request: {incarnation: number}, {incarnation}: Worker): boolean {
  return request.incarnation > incarnation;
}

export function requesterOf(request: {worker: string; incarnation: number}) {
  return {worker: request.worker, incarnation: request.incarnation};
}

/** A worker by its request, or by its document. */
type Named = {worker: string} | {name: string};

export function unknown({worker}: {worker: string}): string {
  return `no document knows this incarnation of ${worker}: its database was lost or restored, and its node will be deleted`;
}

export function notWanted({incarnation, ...sender}: Named & {incarnation: number}): string {
  const name = 'worker' in sender ? sender.worker : sender.name;
  return `${name}, incarnation ${incarnation}, is not wanted any more`;
}

/** Interval of the heartbeats of a pool: short in a pool that people wait for. */
export function heartbeatOf({config}: Pick<Deps, 'config'>, pool: Pool | undefined): number {
  return Math.min(config.heartbeat_s, pool?.poll_s ?? config.heartbeat_s);
}

export function say(action: 'continue' | 'drain' | 'stop' | 'exit', reason: string) {
  return {action, reason, lease_expires_at: null as string | null};
}

export function ok(body: object): WorkerAnswer {
  return {status: 200, body};
}

/** Tells a worker without work to ask again after the `poll_s` of its pool. `asker` spreads the requests of many workers. */
export async function waitFor(
  deps: Parameters<typeof poolOf>[0],
  pool: string,
  asker: string,
  reason: string,
): Promise<WorkerAnswer> {
  const {poll_s} = (await poolOf(deps, pool)) ?? deps.config.pool;
  return ok({action: 'wait', retry_s: retryIn(poll_s, poll_s * 1.25, asker), reason});
}
