/** Stores why the jobs and the zones of a pool wait. Each run's document has its own constraint with its totals. */
import {JOBS} from '../../domain/billing/cost.ts';
import {isWaiting} from '../../domain/job/queue.ts';
import {goesOn, shortText, type Waiting} from '../../domain/records/constraint.ts';
import type {Job} from '../../domain/records/job.ts';
import type {Pool} from '../../domain/records/pool.ts';
import type {Constraints} from '../../domain/tick/fleet-plan.ts';
import {afterReservationTimeout} from '../../domain/tick/gangs.ts';
import type {TickPlan} from '../../domain/tick/plan-tick.ts';
import type {Snapshot} from '../../domain/tick/snapshot.ts';
import {iso} from '../../domain/time.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Deps} from '../deps.ts';
import {poolRecords, skipIfInvalid} from '../documents/documents.ts';
import {jobRecords} from '../documents/job-documents.ts';

/** Writes only what has changed since the snapshot. */
export async function storeWaits(deps: Deps, {pool, jobs, isUnreadable}: Snapshot, constraints: Constraints) {
  const next = withWaits(pool, constraints, deps.now());
  if (!isUnreadable && next !== pool && pool.zones.length > 0)
    await deps.store.transaction(async tx => {
      const current = await poolRecords.find(tx, pool.pool, deps.config.pool);
      if (current) poolRecords.set(tx, withWaits(current, constraints, deps.now()));
    });
  const reason = next.jobs_wait && shortText(next.jobs_wait);
  const changed = (jobs?.first ?? []).filter(job => job.reason !== reason);
  await forEachConcurrently(changed, job => skipIfInvalid(deps.log, () => storeReason(deps, job, reason)));
}

/** Returns the same object if nothing changes. */
function withWaits(pool: Pool, {work, zones}: Constraints, now: number): Pool {
  const jobs_wait = goesOn(pool.jobs_wait, work.get(JOBS), now);
  const zones_wait: Record<string, Waiting> = {};
  for (const [zone, constraint] of zones) {
    const waits = goesOn(pool.zones_wait[zone] ?? null, constraint, now);
    if (waits) zones_wait[zone] = waits;
  }
  const isSame = (name: string) => zones_wait[name] === pool.zones_wait[name];
  const names = [...Object.keys(zones_wait), ...Object.keys(pool.zones_wait)];
  const isUnchanged = jobs_wait === pool.jobs_wait && names.every(isSame);
  return isUnchanged ? pool : {...pool, jobs_wait, zones_wait};
}

/** Pauses the zone for the job, because its slices have waited too long for the others. */
export async function storeReservationTimeout(
  deps: Deps,
  {job: id, zone}: TickPlan['reservationTimeouts'][number],
): Promise<void> {
  const {boot_s} = deps.config.limits;
  await deps.store.transaction(async tx => {
    const job = await jobRecords.get(deps, tx, id);
    const next = job && isWaiting(job) ? afterReservationTimeout(job, zone, boot_s, deps.now()) : undefined;
    if (next) jobRecords.set(deps, tx, next);
  });
}

async function storeReason(deps: Deps, {job: id}: Job, reason: string | null): Promise<void> {
  await deps.store.transaction(async tx => {
    const job = await jobRecords.get(deps, tx, id);
    if (!job || !isWaiting(job) || job.reason === reason) return;
    jobRecords.set(deps, tx, {...job, reason, updated_at: iso(deps.now())});
  });
}
