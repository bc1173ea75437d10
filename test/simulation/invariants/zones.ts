/** A zone is asked as often as it may be, and is left alone when it refuses or keeps taking its nodes back. */
import type {Zone} from '../../../shared/domain/fleet/placement.ts';
import {paths} from '../../../shared/domain/names.ts';
import type {Document} from '../../../shared/ports.ts';
import type {Context} from '../context.ts';
import {MOST_SKEW_MS} from '../faults.ts';
import {isBorn} from './nodes.ts';
import type {Violations} from './violations.ts';

/** How long a zone is left alone that has no quota for us, and one that refused for another reason: see LIMITS. */
const QUOTA_S = 300;
const REFUSED_S = 200;

const ALIVE = ['booting', 'idle', 'working', 'draining'];

export class Zones {
  readonly #context: Context;
  readonly #violations: Violations;
  readonly #births = new Map<string, number[]>();
  /** Of one commit: the incarnations that end, and what their zones are charged with. */
  #ends: {zone: string; wasGiven: boolean; isUnheard: boolean}[] = [];
  #counts: {zone: string; losses: number; unheard: number}[] = [];

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

  onEndOfLife(worker: string, {cause_kind, last_phase}: Document): void {
    const document = this.#context.store.peek(paths.worker(worker));
    const isUnheard = cause_kind === 'unheard' && document?.hello_at === null;
    if (cause_kind === 'not-needed' || cause_kind === 'asked') return;
    const wasGiven = ALIVE.includes(String(last_phase));
    this.#ends.push({zone: String(document?.zone), wasGiven, isUnheard});
  }

  /** A zone has lost the nodes that it took or that failed, and no other; its unheard boots are those that never spoke. */
  onCommitted(): void {
    for (const zone of new Set([...this.#ends, ...this.#counts].map(({zone}) => zone))) {
      const ends = this.#ends.filter(end => end.zone === zone);
      const counts = this.#counts.filter(count => count.zone === zone);
      const [losses, unheard] = [sumOf(counts, 'losses'), sumOf(counts, 'unheard')];
      const least = ends.filter(({wasGiven}) => wasGiven).length;
      this.#violations.check(
        least <= losses && losses <= ends.length,
        () =>
          `${zone} is charged with ${losses} losses, and lost ${least} nodes of ${ends.length} that ended`,
      );
      const most = ends.filter(({isUnheard}) => isUnheard).length;
      this.#violations.check(
        unheard <= most,
        () => `${zone} is charged with ${unheard} unheard boots, and ${most} nodes were unheard`,
      );
    }
    [this.#ends, this.#counts] = [[], []];
  }

  /** The pool has no more workers than the deployment allows. */
  onPool({version, workers_per_zone, zones}: Document): void {
    const workers = Number(workers_per_zone) * (zones as string[]).length;
    const {max_workers} = this.#context.config.ceilings;
    this.#violations.check(
      version === 0 || workers <= max_workers,
      () => `the pool has ${workers} workers, and ${max_workers} are allowed`,
    );
  }

  /** A zone that refused is left alone for a while, and so is one whose last three nodes or more were all lost young. */
  onZone(before: Zone, after: Zone): void {
    const {now} = this.#context.clockwork;
    this.#counts.push({
      zone: after.zone,
      losses: after.losses.length - before.losses.length,
      unheard: after.boots.unheard - before.boots.unheard,
    });
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

function sumOf<K extends string>(items: readonly Record<K, number>[], key: K): number {
  return items.reduce((sum, item) => sum + item[key], 0);
}
