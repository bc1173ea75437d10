/** Why a TPU does no work, or a slot has no TPU, as the document of the slot shows. */

import {type Constraint, constraint} from '../records/constraint.ts';
import {hasEnded, isBlocked, type Worker} from '../records/worker.ts';
import type {SilenceGuard} from '../records/zone.ts';
import {utcText} from '../time.ts';
import {hostText, quietestHost} from './hosts.ts';
import {nodeStanding, queueStanding} from './provider-states.ts';

/** Why no node may be created in the slot, from its document only; undefined for a slot that may have one. */
export function slotConstraint(worker: Worker | undefined, now: number): Constraint | undefined {
  if (worker?.held) return constraint('deleted', worker.name);
  if (worker?.phase !== 'gone' || !isBlocked(worker, now)) return undefined;
  const {name, last_error, last_death, blocked_until_at} = worker;
  return constraint('slot-blocked', name, last_error ?? last_death, {next_try_at: blocked_until_at});
}

/** The constraint of a worker that has sent nothing for too long. If the silence guard of its zone holds workers, that is the constraint. */
export function silentConstraint(worker: Worker, silence_guard: SilenceGuard | null | undefined): Constraint {
  const {name, zone} = worker;
  if (!silence_guard || silence_guard.held === 0)
    return constraint('away', name, 'it sends nothing', {since_at: quietestHost(worker).at});
  const usd =
    silence_guard.held_usd_per_hour === null
      ? 'an unknown price'
      : `$${silence_guard.held_usd_per_hour.toFixed(2)}`;
  return constraint('silence-guard', zone, `${silence_guard.held} TPUs for ${usd} an hour`, {
    since_at: silence_guard.since_at,
  });
}

/** Why a worker that may have work stands still; undefined if its document shows progress. */
export function standstillOf(worker: Worker): Constraint | undefined {
  const {name, waits_for, provider_since_at} = worker;
  if (nodeStanding(worker) === 'mending')
    return constraint('away', name, 'Google is repairing its host', {since_at: provider_since_at});
  return waits_for === null ? undefined : constraint('model', name, waits_for);
}

/** Usual times of the pool, as texts such as `usually 2.5 min`. */
export type Usual = {create: string | null; boot: string | null};

/** Why the slot has no TPU at work; undefined if it works or no work needs it. `limit`: why its zone gives no node now. */
export function tpuConstraint(
  worker: Worker,
  limit: Constraint | undefined,
  now: number,
  usual: Usual = {create: null, boot: null},
): Constraint | undefined {
  const {name, phase, phase_since_at: since_at, valid_until_at, queue_state} = worker;
  const own = slotConstraint(worker, now);
  if (own) return own;
  if (phase === 'gone') return limit;
  if (hasEnded(worker) || phase === 'draining') return leavingConstraint(worker);
  const still = standstillOf(worker);
  if (still) return still;
  if (phase === 'booting') {
    const {host, at} = quietestHost(worker);
    const isUnheard = worker.host_count > 1 && at === null;
    const silent = isUnheard ? `${hostText(host, worker.host_count)} has said nothing yet` : null;
    return coming(worker, 'it boots', silent, usual.boot);
  }
  if (phase !== 'creating') {
    if (worker.work !== null) return undefined;
    // Its lease ended because it is silent. Its next heartbeat clears the suspicion.
    return worker.suspect === null
      ? constraint('idle', name, null, {since_at})
      : silentConstraint(worker, null);
  }
  if (queueStanding(worker) === 'waiting') {
    const until =
      valid_until_at === null ? queue_state : `${queue_state}, valid until ${utcText(valid_until_at)}`;
    return coming(worker, 'it waits in the queue of its zone', until);
  }
  const isUnanswered = nodeStanding(worker) === null || (worker.asked_at ?? '') > (limit?.since_at ?? '');
  if (limit && isUnanswered) return limit;
  return coming(worker, 'it is being created', usual.create);
}

/** Why the slot of a worker that has ended, or is about to, is not free yet. */
export function leavingConstraint({name, last_death, phase_since_at: since_at}: Worker): Constraint {
  const death = last_death === null ? '' : `: ${last_death}`;
  return constraint('away', name, `it leaves its slot${death}`, {since_at});
}

function coming({name, phase_since_at: since_at}: Worker, ...evidence: (string | null)[]): Constraint {
  return constraint('coming', name, evidence.filter(part => part !== null).join(', '), {since_at});
}
