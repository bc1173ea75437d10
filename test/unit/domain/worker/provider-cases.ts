/** Workers and observations for the tests of Cloud TPU's states. */

import type {Phase, Worker} from '../../../../shared/domain/records/worker.ts';
import {decideWorker} from '../../../../shared/domain/worker/lifecycle.ts';
import type {Limits} from '../../../../shared/domain/worker/limits.ts';
import type {FoundNode} from '../../../../shared/domain/worker/observation.ts';
import type {Queued} from '../../../../shared/domain/worker/provider-states.ts';
import {at, aWorker, LIMITS as COMMON_LIMITS, moment, T0} from '../../../world/builders.ts';

export const LIMITS: Limits = {...COMMON_LIMITS, drain_s: 1800, repair_s: 1000};
export const PHASES: Phase[] = ['creating', 'booting', 'idle', 'working', 'draining', 'deleting', 'gone'];
export const SPEAKING: Phase[] = ['idle', 'working', 'draining'];

/** Values of an enum of the API, as words. */
export const wordsOf = (words: object) => Object.keys(words).filter(word => !/^\d+$/.test(word));

export const inQueue = (state: string, changes: Partial<Queued> = {}): Queued => ({
  ...{state, initiator: 'SERVICE', error: null, valid_until_at: at(7200), ...changes},
});

export function wellIn(phase: Phase, changes: Partial<Worker> = {}): Worker {
  const hasWork = phase === 'working' || phase === 'draining';
  return aWorker({
    ...{phase, asked_at: at(0), ready_at: phase === 'creating' ? null : at(0)},
    ...{heartbeat_at: SPEAKING.includes(phase) ? at(0) : null, work: hasWork ? 'my-run/007' : null},
    ...changes,
  });
}

export const decide = (worker: Worker, seen: FoundNode, seconds = 0) =>
  decideWorker(worker, seen, 'wanted', LIMITS, moment(T0 + seconds * 1000));

/** The decision about an observation that is the same now and `seconds` later. */
export const later = (worker: Worker, seen: FoundNode, seconds: number) =>
  decide(decide(worker, seen).worker, seen, seconds);
