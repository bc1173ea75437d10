import {KEPT, payerOf} from '../../shared/domain/billing/cost.ts';
import {keptBy, type Pool} from '../../shared/domain/records/pool.ts';
import {hasEnded, type Worker} from '../../shared/domain/records/worker.ts';
import {utcText} from '../../shared/domain/time.ts';
import {counted, dollarText} from '../text/format.ts';

/** `keeps 1 TPU until 2026-01-02 15:20:00 UTC: 1 without work at $1.20 an hour`; undefined for a pool that keeps no TPU now. */
export function keptText(pool: Pool, workers: readonly Worker[], now: number): string | undefined {
  const kept = keptBy(pool, now);
  if (kept === 0 || !pool.keep) return undefined;
  const idle = workers.filter(
    worker => worker.pool === pool.pool && !hasEnded(worker) && payerOf(worker) === KEPT,
  );
  const usd = idle.reduce((sum, {usd_per_hour}) => sum + (usd_per_hour ?? 0), 0);
  const cost = idle.length > 0 ? `: ${idle.length} without work at ${dollarText(usd)} an hour` : '';
  return `keeps ${counted(kept, 'TPU')} until ${utcText(pool.keep.until_at)}${cost}`;
}
