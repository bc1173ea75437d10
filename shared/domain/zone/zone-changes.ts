/** Changes of a zone that follow from a decision about one of its slots. */

import {hasEnded, isAlive, type Worker} from '../records/worker.ts';
import type {Zone} from '../records/zone.ts';
import type {Death} from '../worker/liveness.ts';
import {nodeStanding, queueStanding} from '../worker/provider-states.ts';
import {afterAsk, afterGiven, afterRefusal} from './limiter.ts';
import {lostNode, type PlacementLimits, withLimiter} from './placement.ts';

export type Change = 'asked' | 'asked again' | 'given' | 'refused' | 'lost';

/** Decision about a worker: its next state, and the death that ends its incarnation, if any. */
type Decision = {worker: Worker; death?: Death};

/** The change of a zone that a decision shows: a create, a repeated create, a node that the zone lists, a refusal or a loss. Undefined: none. */
export function changeOf(before: Worker, {worker, death}: Decision): Change | undefined {
  if (worker.phase === 'creating' && before.phase === 'gone') return 'asked';
  if (worker.phase === 'creating' && worker.asked_at !== before.asked_at) return 'asked again';
  if (death?.refusal) return 'refused';
  // The phase alone proves nothing, because a heartbeat before the tick may have changed it already.
  const [standing, next] = [nodeStanding(before), nodeStanding(worker)];
  const isNews = standing === null || (standing === 'coming' && next !== 'coming');
  if (isNews && next !== null && next !== 'over' && !hasEnded(worker)) return 'given';
  if (death === undefined || death.kind === 'asked' || hasEnded(before)) return undefined;
  // A preemption counts as a loss of the zone, even if no tick saw the node READY.
  const wasGiven = isAlive(before) || nodeStanding(worker) === 'over' || queueStanding(worker) === 'over';
  return wasGiven ? 'lost' : undefined;
}

export const isAsking = (change: Change | undefined) => change === 'asked' || change === 'asked again';

/** True if the incarnation ends. A refused one is requested again; if its node appears after all, it ends when the node is deleted. */
export function isEnding(before: Worker, after: Worker): boolean {
  return hasEnded(after) && !after.refused && (!hasEnded(before) || before.refused);
}

export type ZoneSettings = {placement: PlacementLimits; bundle: string};

export function zoneAfter(
  {placement, bundle}: ZoneSettings,
  zone: Zone,
  change: Change,
  {before, worker, death}: Decision & {before: Worker},
  now: number,
): Zone {
  switch (change) {
    case 'asked':
    case 'asked again':
      return withLimiter(zone, afterAsk(zone.limiter, bundle, placement, now), now);
    case 'given': {
      const isReady = nodeStanding(worker) !== 'coming';
      return withLimiter(zone, afterGiven(zone.limiter, {asked_at: before.asked_at, isReady}), now);
    }
    case 'refused': {
      const isLate = nodeStanding(before) !== null;
      const {asked_at} = before;
      const refused = {
        kind: death?.refusal ?? ('transient' as const),
        reason: death?.cause ?? '',
        isLate,
        asked_at,
      };
      return withLimiter(zone, afterRefusal(zone.limiter, refused, placement, now), now);
    }
    case 'lost': {
      const isFailed = death !== undefined && ['setup', 'unheard', 'boot', 'broken'].includes(death.kind);
      const neverWorked = isFailed || before.phase === 'creating';
      return lostNode(zone, neverWorked ? null : (before.ready_at ?? before.phase_since_at), now);
    }
    default:
      return change satisfies never;
  }
}
