import {z} from 'zod';
import {count, dollars, instant, orNull, stored, text} from '../fields.ts';
import {churnField} from './churn.ts';
import {limiterField} from './limiter.ts';

/**
 * The silence guard of a zone. If many of its workers are silent at once, the fault may be ours.
 * A share of the silent workers is replaced, and the replacements are canaries.
 * The other silent workers are held: they keep their nodes and charge no stream.
 * A canary that sends a heartbeat shows that the silent workers are dead: all of them end. A canary that stays silent is a bad verdict.
 * If a due canary finds no free slot, a held worker gives up its slot.
 */
export const silenceGuard = stored({
  since_at: instant,
  active_at: instant,
  /** Silent workers that were replaced within the share. */
  replaced: count,
  /** Time of the last replacement within the share, or of a worker whose slot a canary needed. */
  replaced_at: orNull(instant),
  /** Canaries still to create, even while other creates are stopped. */
  canaries_due: count,
  bad_verdicts: count,
  /** Time of the last further canary, after two bad verdicts. */
  canary_at: orNull(instant),
  /** Latest first heartbeat of any worker of the zone since the previous episode began. */
  spoke_at: orNull(instant),
  /** Oldest first heartbeat that does not count yet. Its worker may be gone by the time it counts. */
  hello_at: orNull(instant),
  /** Workers held now, and dollars an hour of their nodes; null where a price is unknown. */
  held: count,
  held_usd_per_hour: orNull(dollars),
});

export type SilenceGuard = z.infer<typeof silenceGuard>;

/** Start of a surplus of orphans that cannot be deleted at once, and start of the time in which lists show none. */
const orphans = stored({since_at: instant, unseen_since_at: orNull(instant)});

export type OrphansMark = z.infer<typeof orphans>;

/**
 * Recent history of a zone for one pool: its limiter, and the lifetimes of lost nodes. `pool` is null for the deployment's own pool. Each
 * pool has its own, because a stock-out of one accelerator proves nothing about another. A node that was no longer wanted is no loss.
 */
export const zoneDocument = stored({
  zone: text.describe('Name of the zone.'),
  pool: orNull(text).describe("Pool whose view this is. Null: the deployment's own pool."),
  limiter: limiterField,
  losses: z
    .array(stored({ended_at: instant, lived_s: count}))
    .describe(
      'Lost nodes, the newest last: `ended_at`, and `lived_s` in seconds. Nodes that were not needed do not count.',
    ),
  silence_guard: orNull(silenceGuard).describe(
    'Set while TPUs of the zone are silent: how many were replaced or `held`, and the canaries of the zone. Else null.',
  ),
  orphans: orNull(orphans).describe(
    'Set while many nodes of the zone have no document: `since_at` and `unseen_since_at`. Else null.',
  ),
  churn: churnField.describe(
    'The last week by `day` and `accelerator`: `tries` and `refusals` of requests; nodes `given` and their `wait_s`; `lives` that ended, their `life_s`, `preemptions`, `usd` and `tokens`.',
  ),
  updated_at: instant.describe('Time of the last change of the document.'),
});

export type Zone = z.infer<typeof zoneDocument>;

/**
 * Kind of a pool's requests. `node`: the zone answers at once, and after a stock-out another zone is tried.
 * `queued-resource`: the request waits in the queue of the zone.
 * `auto`: `node`, but `queued-resource` while the zone is sold out.
 * `flex-start`: an instance of Compute Engine that waits for its machine and may then live for a week.
 */
