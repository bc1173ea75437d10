import type {RequestWrites} from '../records/request-writes.ts';
import {isAlive, type Worker} from '../records/worker.ts';

export type WorkerAnswer = {status: 200 | 403 | 409; body: object};
/** `complaint`: a log entry about a sender that may be forged. `wakes` and `endsExec` are done after the write. */
export type RequestDecision = {
  answer: WorkerAnswer;
  writes?: RequestWrites;
  complaint?: string;
  /** The decision asks for a tick. */
  wakes?: boolean;
  /** The command that ends unless another host still runs it. */
  endsExec?: string;
  /** The job whose older versions of the checkpoint nobody restores any more. */
  sweeps?: string;
};

/** `order`: the work of a granted lease. Without an order the worker does not get this work. */
export type GrantDecision = {order?: object; writes?: RequestWrites};

export const ok = (body: object): WorkerAnswer => ({status: 200, body});

export function advise(
  action: 'continue' | 'drain' | 'cancel' | 'stop' | 'exit',
  reason: string,
  status: 200 | 409 = 200,
): WorkerAnswer {
  return {status, body: {action, reason, lease_expires_at: null}};
}

export const none = (reason: string): WorkerAnswer => ok({action: 'none', reason});

/** Refuses a request with 403 and the order to exit. The agent says hello once more, then exits. */
export function refuse(reason: string, complaint: string): RequestDecision {
  return {answer: {status: 403, body: {action: 'exit', reason, error: reason}}, complaint};
}

/** True if the request comes from the slot's present incarnation. A `creating` slot counts: its node can boot before a tick sees it READY. */
export function isCurrent(worker: Worker | undefined, request: {incarnation: number}): worker is Worker {
  return (
    worker !== undefined &&
    worker.incarnation === request.incarnation &&
    (isAlive(worker) || worker.phase === 'creating')
  );
}

export function unknownText({worker}: {worker: string}): string {
  return `no document knows this incarnation of ${worker}: its database was lost or restored, and its node will be deleted`;
}

export function notWantedText(name: string, incarnation: number): string {
  return `${name}, incarnation ${incarnation}, is not wanted any more`;
}
