/** Answers to agents, and the checks of their incarnations. */
import {isAlive, type Worker} from '../../domain/worker/worker.ts';

export type WorkerAnswer = {status: 200 | 409; body: object};

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

export function unknown({worker}: {worker: string}): string {
  return `no document knows this incarnation of ${worker}: its database was lost or restored, and its node will be deleted`;
}

export function notWanted(request: {worker: string; incarnation: number}): string {
  return `${request.worker}, incarnation ${request.incarnation}, is not wanted any more`;
}

export function ok(body: object): WorkerAnswer {
  return {status: 200, body};
}
