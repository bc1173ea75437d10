/** Answers to agents, and which agents a document knows. */
import {isAlive, type Worker} from '../../domain/worker/worker.ts';

export type WorkerAnswer = {status: 200 | 409; body: object};

/** A slot that is `creating` is heard too: its node can boot before a tick has seen it READY. */
export function isCurrent(worker: Worker | undefined, request: {incarnation: number}): worker is Worker {
  return (
    worker !== undefined &&
    worker.incarnation === request.incarnation &&
    (isAlive(worker) || worker.phase === 'creating')
  );
}

/** An incarnation that no document has asked for: the database was restored from a backup that is older than the worker. */
export function isAhead(request: {incarnation: number}, {incarnation}: Worker): boolean {
  return request.incarnation > incarnation;
}

export function holderOf(request: {worker: string; incarnation: number}) {
  return {worker: request.worker, incarnation: request.incarnation};
}

export function unknown({worker}: {worker: string}): string {
  return `no document knows this life of ${worker}: its database was lost or restored, and its node will be deleted`;
}

export function notWanted(request: {worker: string; incarnation: number}): string {
  return `${request.worker}, incarnation ${request.incarnation}, is not wanted any more`;
}

export function ok(body: object): WorkerAnswer {
  return {status: 200, body};
}
