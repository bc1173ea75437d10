import {z} from 'zod';
import {count, emptyOf, instant, orNull, stored} from '../fields.ts';
import {iso, msOf} from '../time.ts';

/**
 * Served time: the time in which worker-api provably answered. Limits on silence count only this time, so our own downtime ends no worker. A
 * proof is a ping or a heartbeat that worker-api stored. Time between two proofs at most `PROOF_S` apart is served.
 */
export const servedDocument = stored({
  proven_at: orNull(instant).describe(
    'Newest proof that messages arrive. Time after it counts against no TPU. Null before the first proof.',
  ),
  gaps: z
    .array(stored({from_at: instant, to_at: instant}))
    .describe(
      'Intervals without proofs, oldest first: `from_at`, `to_at`. Silence in a gap counts against no TPU.',
    ),
  failed_pings: count.describe('Pings of the tick in a row that failed.'),
  failing_since_at: orNull(instant).describe('Time of the first failed ping in a row; else null.'),
});
export type Served = z.infer<typeof servedDocument>;

/** A moment as limits see it: the clock, and the served time up to it. */
export type Moment = {now: number; servedTime: Served};

/** Seconds: more than two ticks, so a single missed tick loses no served time. */
export const PROOF_S = 150;

/** The longest limit is a day, so older gaps do not matter. */
const KEPT_MS = 2 * 86_400_000;
const MOST_GAPS = 200;

export const NEVER_SERVED: Served = emptyOf(servedDocument.shape);

/** Adds a proof. One that is older than the newest changes nothing. */
export function withProof(served: Served, proof_ms: number): Served {
  const {proven_at} = served;
  const last_ms = proven_at === null ? 0 : msOf(proven_at);
  if (proof_ms <= last_ms) return served;
  const to_at = iso(proof_ms);
  if (proof_ms - last_ms <= PROOF_S * 1000) return {...served, proven_at: to_at};
  const gaps = served.gaps.filter(gap => proof_ms - msOf(gap.to_at) <= KEPT_MS);
  return {...served, proven_at: to_at, gaps: merged([...gaps, {from_at: iso(last_ms), to_at}])};
}

/** Seconds: more than storing a ping takes, and less than a lease lasts. */
const LATE_S = 10;

/**
 * Adds the proof of a ping that arrives now. If the newest proof is later than the ping, the clock was set back. Until it reached that time
 * again, no proof would count and every lease would end at once. So served time begins again with the ping.
 */
export function withPing(served: Served, received_ms: number): Served {
  const isSetBack = served.proven_at !== null && msOf(served.proven_at) - received_ms > LATE_S * 1000;
  return withProof(isSetBack ? {...served, ...NEVER_SERVED} : served, received_ms);
}

/** Joins the two oldest of more than `MOST_GAPS` gaps. The time between them then counts as not served. */
function merged(gaps: Served['gaps']): Served['gaps'] {
  const [first, second, ...others] = gaps;
  if (gaps.length <= MOST_GAPS || !first || !second) return gaps;
  return [{from_at: first.from_at, to_at: second.to_at}, ...others];
}

/** Milliseconds of served time from `since` until `until`, or until the newest proof if that is earlier. */
export function servedBetween({proven_at, gaps}: Served, since: string, until: string): number {
  if (proven_at === null) return 0;
  const [from, to] = [msOf(since), Math.min(msOf(until), msOf(proven_at))];
  const outages = gaps.map(gap => Math.min(to, msOf(gap.to_at)) - Math.max(from, msOf(gap.from_at)));
  return to - from - outages.reduce((sum, ms) => sum + Math.max(0, ms), 0);
}

/** True if more than `limit_s` seconds of served time have passed since `instant`. False for null. */
export function isServedFor(served: Served, instant: string | null, limit_s: number): boolean {
  if (instant === null || served.proven_at === null) return false;
  return servedBetween(served, instant, served.proven_at) > limit_s * 1000;
}
