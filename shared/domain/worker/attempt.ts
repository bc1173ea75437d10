import {z} from 'zod';
import {totalOf} from '../billing/cost.ts';
import {dollars, incarnation, instant, orNull, text} from '../fields.ts';
import {logObject} from '../names.ts';
import type {Worker} from '../records/worker.ts';
import {iso} from '../time.ts';
import {phasesAtEnd} from './life-phases.ts';
import type {Death} from './liveness.ts';

const KEPT_DAYS = 90;

/**
 * Record of an incarnation that has ended: its cause of death, last states, cost and the place of its log.
 * Only people and commands read its other fields.
 */
export const attemptDocument = z.looseObject({
  worker: text.describe('Name of the slot.'),
  incarnation: incarnation.describe('Number of the incarnation; also the document id, with six digits.'),
  cause: text.describe('Why the incarnation ended, as a sentence part.'),
  ready_at: orNull(instant).describe('First time at which the node was READY; null if it never was.'),
  ended_at: instant.describe('Time at which the control plane ended the incarnation.'),
  gone_at: instant.optional().describe('Time at which the node was gone. Billing ends here. Absent before.'),
  expire_at: instant.describe('Firestore deletes the document some time after this: 90 days after the end.'),
  costs: z
    .record(text, dollars)
    .describe('Dollars of the incarnation by the run that paid; keys with `_` are no runs.'),
  cost_usd: dollars.describe('Sum of `costs`.'),
});
export type WorkerAttempt = z.infer<typeof attemptDocument>;

/** The record of an incarnation that ends now. `worker`: the slot after its end. */
export function attemptOf(
  before: Worker,
  {worker, death}: {worker: Worker; death?: Death},
  logs_bucket: string,
  now: number,
): WorkerAttempt {
  const {name, incarnation, provisioning, work, ready_at, costs} = before;
  const {provider_state, queue_state, health, symptoms} = worker;
  return {
    ...{worker: name, incarnation, provisioning, work, ready_at, costs, cost_usd: totalOf(costs)},
    ...{provider_state, queue_state, health, symptoms},
    cause: death?.cause ?? 'not needed any more',
    cause_kind: death?.kind ?? 'not-needed',
    last_phase: before.phase,
    log: `gs://${logs_bucket}/${logObject(name, incarnation)}`,
    ended_at: iso(now),
    ...(worker.phase === 'gone' ? {gone_at: iso(now)} : {}),
    expire_at: iso(now + KEPT_DAYS * 86_400_000),
    phases: phasesAtEnd(before, death, now),
  };
}

/** The record with the cost of its incarnation. If the node was seen again after it was billed, the costs add up. */
export function withBill(attempt: WorkerAttempt, {costs, ready_at}: Worker, now: number): WorkerAttempt {
  const gone = {gone_at: iso(now)};
  if (attempt.gone_at === undefined) return {...attempt, ready_at, costs, cost_usd: totalOf(costs), ...gone};
  if (ready_at === null) return attempt;
  const all = {...attempt.costs};
  for (const [run, usd] of Object.entries(costs)) all[run] = (all[run] ?? 0) + usd;
  const first = {ready_at: attempt.ready_at ?? ready_at, seen_again_at: ready_at};
  return {...attempt, ...first, costs: all, cost_usd: totalOf(all), ...gone};
}
