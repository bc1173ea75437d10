import {z} from 'zod';
import {count, instant, orNull, stored, text} from '../fields.ts';

/**
 * `asked_at` is the last request, and `next_at` the earliest next one. Null means at any time if the limiter is open, and never if a person
 * stopped it. `refuses_late`: the zone listed a node before refusing it, so only a READY node opens the zone again. `failed_boots`:
 * consecutive failed boots of `bundle`. `has_given`: the zone has listed a node.
 */
export const limiter = stored({
  state: z.enum(['open', 'probing', 'stopped']),
  cause: orNull(
    z.enum([
      ...(['no-capacity', 'quota', 'permission', 'policy', 'bad-request', 'unknown', 'transient'] as const),
      ...(['boots', 'person'] as const),
    ]),
  ),
  reason: orNull(text),
  since_at: orNull(instant),
  /** Refused requests since then. The first burst of requests counts as one. */
  refusals: count,
  asked_at: orNull(instant),
  next_at: orNull(instant),
  refuses_late: z.boolean(),
  has_given: z.boolean().default(false),
  failed_boots: count,
  failed_boot_at: orNull(instant),
  bundle: text,
});

export type Limiter = z.infer<typeof limiter>;

export const NO_FAILED_BOOTS = {failed_boots: 0, failed_boot_at: null, bundle: ''};

export const NO_CAUSE = {
  state: 'open' as const,
  cause: null,
  reason: null,
  since_at: null,
  refusals: 0,
  next_at: null,
};

export const OPEN: Limiter = {
  ...NO_CAUSE,
  ...{asked_at: null, refuses_late: false, has_given: false, ...NO_FAILED_BOOTS},
};

export const limiterField = limiter.describe(
  'Limit of creates: `state` (`open`, `probing`, `stopped`), its `cause` and `reason` since `since_at`, with the count of `refusals`; `asked_at` is the last request, `next_at` the earliest next one; `failed_boots` of `bundle` in a row, the last at `failed_boot_at`; `refuses_late` is true where a node must be READY to open the zone again, and `has_given` where the zone has listed a node. The limiter of a pool limits all its zones.',
);
