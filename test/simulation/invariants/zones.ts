/** A zone is asked as often as it may be, and is left alone when it refuses or keeps taking its nodes back. */
import type {Zone} from '../../../shared/domain/fleet/placement.ts';
import type {Document} from '../../../shared/ports.ts';
import type {Context} from '../context.ts';
import {MOST_SKEW_MS} from '../faults.ts';
import {isBorn} from './nodes.ts';
import type {Violations} from './violations.ts';

/** How long a zone is left alone that has no quota for us, and one that refused for another reason: see LIMITS. */
const QUOTA_S = 300;
const REFUSED_S = 200;

export class Zones {
  readonly #context: Context;
  readonly #violations: Violations;
  readonly #births = new Map<string, number[]>();

  constructor(context: Context, violations: Violations) {
    this.#context = context;
    this.#violations = violations;
  }

  /** A zone is asked for no more nodes in an hour than it may be. */
  onWorker(before: Document, after: Document): void {
    const isAskedAgain =
      after.phase === 'creating' && before.phase === 'creating' && after.asked_at !== before.asked_at;
    if (!isBorn(before, after) && !isAskedAgain) return;
    const zone = String(after.zone);
    const {now} = this.#context.clockwork;
    const hour = 3_600_000 - 2 * MOST_SKEW_MS;
    const births = [...(this.#births.get(zone) ?? []), now].filter(birth => now - birth < hour);
    this.#births.set(zone, births);
    this.#violations.check(
      births.length <= this.#context.mostCreates,
      () => `${zone} was asked for ${births.length} nodes in an hour`,
    );
  }

  /** A zone that refused is left alone for a while, and so is one whose last three nodes or more were all lost young. */
  onZone(before: Zone, after: Zone): void {
    const {now} = this.#context.clockwork;
    const isBlocked = after.blocked_until_at !== before.blocked_until_at && after.blocked_until_at !== null;
    const blocked_s = (Date.parse(after.blocked_until_at ?? '') - Date.parse(after.updated_at)) / 1000;
    const least_s = /quota/.test(after.blocked_reason ?? '') ? QUOTA_S : REFUSED_S;
    this.#violations.check(
      !isBlocked || blocked_s === least_s,
      () => `${after.zone} is left alone for ${blocked_s} s: ${after.blocked_reason}`,
    );
    const asked = after.creates.at(-1)?.asked_at;
    if (asked === undefined || asked === before.creates.at(-1)?.asked_at) return;
    const stays =
      before.blocked_until_at === after.blocked_until_at ? Date.parse(before.blocked_until_at ?? '') : 0;
    this.#violations.check(
      !(stays > now + MOST_SKEW_MS),
      () => `${after.zone} is asked, and it refused until ${after.blocked_until_at}`,
    );
    const since = (minutes: number) =>
      before.losses.filter(({ended_at}) => Date.parse(ended_at) > now - minutes * 60_000);
    const isChurning = since(25).length >= 3 && since(35).every(({lived_s}) => lived_s < 300);
    const isProbe = (before.brake?.probes_due ?? 0) > 0;
    this.#violations.check(
      !isChurning || isProbe,
      () => `${after.zone} is asked, and lost ${JSON.stringify(since(25))}`,
    );
  }

  onWipe(): void {
    this.#births.clear();
  }
}
