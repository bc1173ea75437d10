/** Changes of a zone that follow from a decision about one of its slots. */
import type {Death} from '../worker/liveness.ts';
import {nodeStanding, queueStanding} from '../worker/provider-states.ts';
import {hasEnded, isAlive, type Worker} from '../worker/worker.ts';
import {askedFor, gaveNode, lostNode, type PlacementLimits, refusedBy, type Zone} from './placement.ts';

export type Change = 'asked' | 'asked again' | 'given' | 'refused' | 'lost';

/** Decision about a worker: its next state, and the death that ends its incarnation, if any. */
type Decision = {worker: Worker; death?: Death};

/** Returns the change that a decision shows: a create, a repeated create, a READY node, a refusal or a loss. Undefined: none. */
export function changeOf(before: Worker, {worker, death}: Decision): Change | undefined {
  if (worker.phase === 'creating' && before.phase === 'gone') return 'asked';
  if (worker.phase === 'creating' && worker.asked_at !== before.asked_at) return 'asked again';
  if (death?.refusal) return 'refused';
  // The phase alone is no evidence: a heartbeat before the tick has changed it already.
  const standing = nodeStanding(before);
  const isNew = (standing === null || standing === 'coming') && nodeStanding(worker) === 'up';
  if (isNew && isAlive(worker)) return 'given';
  if (death === undefined || death.kind === 'asked' || hasEnded(before)) return undefined;
  // A preemption counts as a loss of the zone, even before a tick saw the node READY.
  const wasGiven = isAlive(before) || nodeStanding(worker) === 'over' || queueStanding(worker) === 'over';
  return wasGiven ? 'lost' : undefined;
}

export function isAsking(change: Change | undefined): boolean {
  return change === 'asked' || change === 'asked again';
}

export function isEnding(before: Worker, after: Worker): boolean {
  return hasEnded(after) && !hasEnded(before);
}

/** Returns the zone updated by the change. */
export function zoneAfter(
  limits: PlacementLimits,
  zone: Zone,
  change: Change,
  {before, death}: {before: Worker; death?: Death},
  now: number,
): Zone {
  switch (change) {
    case 'asked':
    case 'asked again':
      return askedFor(zone, now);
    case 'given':
      return gaveNode(zone, now);
    case 'refused':
      return refusedBy(zone, death?.refusal ?? 'transient', death?.cause ?? '', limits, now);
    case 'lost': {
      const isFailed = death !== undefined && ['setup', 'unheard', 'boot', 'broken'].includes(death.kind);
      const neverWorked = isFailed || before.phase === 'creating';
      return lostNode(zone, neverWorked ? null : (before.ready_at ?? before.phase_since_at), now);
    }
    default:
      return change satisfies never;
  }
}
