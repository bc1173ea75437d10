import {totalOf} from '../../domain/billing/cost.ts';
import {logObject, paths} from '../../domain/names.ts';
import {iso} from '../../domain/time.ts';
import type {Death} from '../../domain/worker/liveness.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import type {Deps} from '../deps.ts';
import {attemptRecords} from './history-documents.ts';

const KEPT_DAYS = 90;

/** Records an incarnation that ends: its cause of death, its last states, its cost and the place of its log. */
export function recordAttempt(
  {config}: Deps,
  tx: Transaction,
  before: Worker,
  {worker, death}: {worker: Worker; death?: Death},
  now: number,
): void {
  attemptRecords.set(tx, paths.attempt(before.name, before.incarnation), {
    worker: before.name,
    incarnation: before.incarnation,
    cause: death?.cause ?? 'not needed any more',
    cause_kind: death?.kind ?? 'not-needed',
    last_phase: before.phase,
    provisioning: before.provisioning,
    provider_state: worker.provider_state,
    queue_state: worker.queue_state,
    health: worker.health,
    symptoms: worker.symptoms,
    work: before.work,
    log: `gs://${config.logs_bucket}/${logObject(before.name, before.incarnation)}`,
    ready_at: before.ready_at,
    ended_at: iso(now),
    ...(worker.phase === 'gone' ? {gone_at: iso(now)} : {}),
    expire_at: iso(now + KEPT_DAYS * 86_400_000),
    costs: before.costs,
    cost_usd: totalOf(before.costs),
  });
}
