/** Workers and observations for the tests of the lifecycle. */

import type {Phase, Worker} from '../../../../shared/domain/records/worker.ts';
import {decideWorker} from '../../../../shared/domain/worker/lifecycle.ts';
import type {FoundNode, Observation} from '../../../../shared/domain/worker/observation.ts';
import {at, aWorker, found, LIMITS, moment, T0} from '../../../world/builders.ts';

export const FOREIGN = {kind: 'foreign', isQueued: false} as const;
export const PHASES: Phase[] = ['creating', 'booting', 'idle', 'working', 'draining', 'deleting', 'gone'];
export const LIVING: Phase[] = ['creating', 'booting', 'idle', 'working', 'draining'];
const SPEAKING: Phase[] = ['idle', 'working', 'draining'];

/** Every state of a Node in the v2 API, and its effect on a healthy slot. */
export const STATES: Record<string, 'well' | 'lost'> = {
  STATE_UNSPECIFIED: 'well',
  UNKNOWN: 'well',
  CREATING: 'well',
  READY: 'well',
  RESTARTING: 'well',
  REIMAGING: 'well',
  REPAIRING: 'well',
  STARTING: 'well',
  UNHIDING: 'well',
  STOPPED: 'lost',
  STOPPING: 'lost',
  DELETING: 'lost',
  PREEMPTED: 'lost',
  TERMINATED: 'lost',
  HIDING: 'lost',
  HIDDEN: 'lost',
  SUSPENDED: 'lost',
};

/** A worker in this phase without any fault so far. */
export function wellIn(phase: Phase, changes: Partial<Worker> = {}): Worker {
  const speaks = SPEAKING.includes(phase);
  return aWorker({
    phase,
    asked_at: phase === 'creating' || phase === 'deleting' ? at(0) : null,
    heartbeat_at: speaks ? at(0) : null,
    work: phase === 'working' || phase === 'draining' ? 'my-run/007' : null,
    ...changes,
  });
}

export const node = (state: string, ...incarnations: number[]): FoundNode =>
  found(state, {incarnations: incarnations.length > 0 ? incarnations : [2]});

export function decide(worker: Worker, observation: Observation, {wanted = true, seconds = 0} = {}) {
  return decideWorker(
    worker,
    observation,
    wanted ? 'wanted' : 'unwanted',
    LIMITS,
    moment(T0 + seconds * 1000),
  );
}
