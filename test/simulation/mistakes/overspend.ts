/** Mistakes that pass a budget, a ceiling or a rate. */
import type {Mistake} from './mistake.ts';

export const OVERSPEND: Mistake[] = [
  {
    name: 'a limit of creates that allows one more each hour',
    class: 'overspend',
    edits: [
      {
        file: 'shared/domain/zone/placement.ts',
        find: 'limits.creates_per_hour - createsOfLastHour(zone, now).length',
        replace: 'limits.creates_per_hour + 1 - createsOfLastHour(zone, now).length',
      },
    ],
  },
  {
    name: 'a repeated create that the limit does not count',
    class: 'overspend',
    edits: [
      {
        file: 'shared/domain/zone/zone-changes.ts',
        find: "    case 'asked again':\n",
        replace:
          "      return askedFor(zone, now);\n    case 'asked again':\n      if (now > 0) return zone;\n",
      },
    ],
  },
  {
    name: 'a budget that keeps no money for its deletes',
    class: 'overspend',
    edits: [
      {
        file: 'shared/domain/billing/cost.ts',
        find: 'if (spent_usd + leaving_usd < budget_usd)',
        replace: 'if (spent_usd < budget_usd)',
      },
    ],
  },
  {
    name: 'an incarnation that its pool is not billed for',
    class: 'overspend',
    edits: [
      {
        file: 'shared/control-plane/workers/bills.ts',
        find: 'spent_usd: pool.spent_usd + total',
        replace: 'spent_usd: Math.max(pool.spent_usd, total)',
      },
    ],
  },
  {
    name: 'an incarnation that its month is not billed for',
    class: 'overspend',
    edits: [
      {
        file: 'shared/control-plane/workers/shared-documents.ts',
        find: 'if (after.spending && after.spending !== before.spending)',
        replace: 'if (after.spending && after.spending === before.spending)',
      },
    ],
  },
  {
    name: 'a zone that refused a node and is asked again at once',
    class: 'overspend',
    edits: [
      {
        file: 'shared/domain/zone/placement.ts',
        find: 'if (zone.blocked_until_at !== null && !isOlderThan(zone.blocked_until_at, 0, now)) return 0;',
        replace:
          'if (zone.blocked_until_at !== null && isOlderThan(zone.blocked_until_at, 0, now)) return 0;',
      },
    ],
  },
  {
    name: 'a request that may wait in the queue ten times too long',
    class: 'overspend',
    edits: [
      {
        file: 'shared/domain/zone/placement.ts',
        find: 'valid_until_at: iso(now + limits.queue_s * 1000)',
        replace: 'valid_until_at: iso(now + limits.queue_s * 10_000)',
      },
    ],
  },
  {
    name: 'a scale message above the ceiling of workers',
    class: 'overspend',
    edits: [
      {
        file: 'shared/domain/commands/settings.ts',
        find: 'whyPoolRefused({...pool, ...current}, ceilings, isLarger ? elsewhere : 0)',
        replace: 'whyPoolRefused(pool, ceilings)',
      },
    ],
  },
  {
    name: 'a burst of wakes that costs a tick for each',
    class: 'overspend',
    edits: [
      {
        file: 'shared/control-plane/tick-queue.ts',
        find: 'this.#paused_until_ms = now + Math.max(',
        replace: 'this.#paused_until_ms = now - Math.max(',
      },
    ],
  },
  {
    name: 'a survey that counts the last stream of each page twice',
    class: 'overspend',
    edits: [
      {
        file: 'shared/control-plane/streams/resync-streams.ts',
        find: 'if (found.stream !== stream) streams += 1;',
        replace: 'streams += 1;',
      },
      {
        file: 'shared/control-plane/streams/resync-streams.ts',
        find: 'if (found.object.name <= cursor.after) continue;',
        replace: '',
      },
    ],
  },
];
