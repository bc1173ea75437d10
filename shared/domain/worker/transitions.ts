/** Transitions of a worker from phase to phase, each with its request to Cloud TPU. */

import {NO_NODE, NO_WORK, type Phase, type Worker} from '../records/worker.ts';
import {isOlderThan, iso} from '../time.ts';
import type {Limits} from './limits.ts';
import type {Death} from './liveness.ts';

export type WorkerAction = {kind: 'create' | 'delete'; worker: string; incarnation: number};

/** `death`: why this incarnation ended before its work did. */
export type WorkerDecision = {worker: Worker; actions: WorkerAction[]; events: string[]; death?: Death};

export const IDLE = {...NO_WORK, activity: null};

export function toCreating(worker: Worker, now: number): WorkerDecision {
  const {refused, incarnation, born_at} = worker;
  const creating = enter(worker, 'creating', now, {
    incarnation: refused ? incarnation : incarnation + 1,
    ...NO_NODE,
    // The ticket of a node depends on `born_at`. If the refused request takes effect late, it also makes a node of this incarnation.
    born_at: refused ? born_at : iso(now),
    asked_at: iso(now),
  });
  const event = `${worker.name} is wanted: creating it, incarnation ${creating.incarnation}`;
  return {worker: creating, actions: [ask('create', creating)], events: refused ? [] : [event]};
}

export function toDeleting(worker: Worker, event: string, now: number, death?: Death): WorkerDecision {
  const deleting = enter(worker, 'deleting', now, {
    asked_at: iso(now),
    refused: false,
    last_death: death?.cause ?? null,
    ...IDLE,
  });
  return {worker: deleting, actions: [ask('delete', deleting)], events: [event], ...(death ? {death} : {})};
}

/** Blocks the slot after Cloud TPU refused its node. The pool uses another slot in the meantime. */
export function createRefused(worker: Worker, reason: string, wait_s: number, now: number): Worker {
  return enter(worker, 'gone', now, {
    refused: worker.phase === 'creating' && worker.provider_state === null && worker.queue_state === null,
    blocked_until_at: iso(now + wait_s * 1000),
    last_error: reason,
    last_death: reason,
    asked_at: null,
  });
}

export function askAgain(
  worker: Worker,
  kind: 'create' | 'delete',
  limits: Limits,
  now: number,
): WorkerDecision {
  if (!isOlderThan(worker.asked_at ?? worker.phase_since_at, limits.ask_again_s, now))
    return unchanged(worker);
  const shows = kind === 'create' ? 'does not show' : 'is still there';
  const event = `${worker.name} ${shows}: asking again to ${kind} it`;
  return {worker: {...worker, asked_at: iso(now)}, actions: [ask(kind, worker)], events: [event]};
}

export const unchanged = (worker: Worker): WorkerDecision => ({worker, actions: [], events: []});

export function enter(worker: Worker, phase: Phase, now: number, changes: Partial<Worker> = {}): Worker {
  return {...worker, ...changes, phase, phase_since_at: iso(now)};
}

function ask(kind: 'create' | 'delete', worker: Worker): WorkerAction {
  return {kind, worker: worker.name, incarnation: worker.incarnation};
}
