/** Checks the limit of creates in a zone, and that a zone gets no create while it is blocked or loses its nodes young. */

import {paths} from '../../../shared/domain/names.ts';
import type {Zone} from '../../../shared/domain/zone/placement.ts';
import type {Document} from '../../../shared/ports.ts';
import {MAX_HANG_MINUTES, MAX_SKEW_MS} from '../faults.ts';
import {isNewIncarnation} from './nodes.ts';
import {Check} from './violations.ts';

/** Seconds for which a zone is blocked after a quota error, and after another refusal: see LIMITS. */
const QUOTA_BLOCK_S = 300;
const REFUSAL_BLOCK_S = 200;

export const ALIVE = ['booting', 'idle', 'working', 'draining'];

export class Zones extends Check {
  readonly #creates = new Map<string, number[]>();
  /** Of one commit: the incarnations that end, and the losses that their zones count. */
  #ends: {zone: string; wasReady: boolean; isFailedBoot: boolean}[] = [];
  #counts: {zone: string; losses: number; unheard: number}[] = [];

  /** A zone gets no more creates in an hour than its limit. */
  onWorker(before: Document, after: Document): void {
    const isRequestedAgain =
      after.phase === 'creating' && before.phase === 'creating' && after.asked_at !== before.asked_at;
    if (!isNewIncarnation(before, after) && !isRequestedAgain) return;
    const zone = keyOf(after.pool, after.zone);
    const {now} = this.context.clockwork;
    // A commit that hangs is later than the time that it names.
    const hung_ms = this.context.storm.hang > 0 ? MAX_HANG_MINUTES * 60_000 : 0;
    const hour = 3_600_000 - 2 * MAX_SKEW_MS - hung_ms;
    const creates = [...(this.#creates.get(zone) ?? []), now].filter(at => now - at < hour);
    this.#creates.set(zone, creates);
    if (creates.length > this.context.maxCreates)
      this.breach(`${zone} got ${creates.length} creates in an hour`);
  }

  onIncarnationEnded(worker: string, {cause_kind, last_phase}: Document): void {
    const document = this.context.store.peek(paths.worker(worker));
    const isFailedBoot = ['unheard', 'boot'].includes(String(cause_kind)) && document?.agent_at === null;
    if (cause_kind === 'not-needed' || cause_kind === 'asked') return;
    const wasReady = ALIVE.includes(String(last_phase));
    this.#ends.push({zone: keyOf(document?.pool, document?.zone), wasReady, isFailedBoot});
  }

  /** A zone counts the losses of nodes that were preempted or failed, and no others, and the failed boots. */
  override onCommitted(): void {
    for (const zone of new Set([...this.#ends, ...this.#counts].map(({zone}) => zone))) {
      const ends = this.#ends.filter(end => end.zone === zone);
      const counts = this.#counts.filter(count => count.zone === zone);
      const [losses, unheard] = [sumOf(counts, 'losses'), sumOf(counts, 'unheard')];
      const least = ends.filter(({wasReady}) => wasReady).length;
      const isMissed = [...this.context.everAlone].some(path => path.startsWith('zones/'));
      if (!isMissed && (least > losses || losses > ends.length))
        this.breach(`${zone} counts ${losses} losses, and lost ${least} nodes of ${ends.length} that ended`);
      const most = ends.filter(({isFailedBoot}) => isFailedBoot).length;
      if (unheard > most) this.breach(`${zone} counts ${unheard} failed boots, and ${most} boots failed`);
    }
    [this.#ends, this.#counts] = [[], []];
  }

  /** The pool has no more workers than the deployment allows. */
  onPool(before: Document | undefined, after: Document): void {
    const slotsOf = ({workers_per_zone, zones}: Document) =>
      Number(workers_per_zone) * (zones as string[]).length;
    const workers = slotsOf(after);
    // A person may edit the document.
    const isLarger = this.violations.actor !== undefined && (!before || workers > slotsOf(before));
    const {max_workers} = this.context.config.ceilings;
    if (isLarger && after.version !== 0 && workers > max_workers)
      this.breach(`the pool has ${workers} workers, and ${max_workers} are allowed`);
  }

  /** A zone is blocked after a refusal, and gets only probes after it lost three or more nodes, all of them young. */
  onZone(before: Zone, after: Zone): void {
    const {now} = this.context.clockwork;
    this.#counts.push({
      zone: keyOf(after.pool ?? this.context.config.pool.pool, after.zone),
      losses: after.losses.length - before.losses.length,
      unheard: after.boots.unheard - before.boots.unheard,
    });
    const isBlocked = after.blocked_until_at !== before.blocked_until_at && after.blocked_until_at !== null;
    const blocked_s = (Date.parse(after.blocked_until_at ?? '') - Date.parse(after.updated_at)) / 1000;
    const least_s = /quota/.test(after.blocked_reason ?? '') ? QUOTA_BLOCK_S : REFUSAL_BLOCK_S;
    if (isBlocked && blocked_s !== least_s)
      this.breach(`${after.zone} is blocked for ${blocked_s} s: ${after.blocked_reason}`);
    const requested_at = after.creates.at(-1)?.asked_at;
    if (requested_at === undefined || requested_at === before.creates.at(-1)?.asked_at) return;
    const blocked_until_ms =
      before.blocked_until_at === after.blocked_until_at ? Date.parse(before.blocked_until_at ?? '') : 0;
    if (blocked_until_ms > now + MAX_SKEW_MS)
      this.breach(`${after.zone} got a create, and is blocked until ${after.blocked_until_at}`);
    const since = (minutes: number) =>
      before.losses.filter(({ended_at}) => Date.parse(ended_at) > now - minutes * 60_000);
    const isChurning = since(25).length >= 3 && since(35).every(({lived_s}) => lived_s < 300);
    const isProbe = (before.brake?.probes_due ?? 0) > 0;
    if (isChurning && !isProbe)
      this.breach(`${after.zone} got a create, and lost ${JSON.stringify(since(25))}`);
  }

  override onWipe(): void {
    this.#creates.clear();
  }
}

/** Each pool knows a zone by itself. */
export function keyOf(pool: unknown, zone: unknown): string {
  return `${pool} in ${zone}`;
}

function sumOf<K extends string>(items: readonly Record<K, number>[], key: K): number {
  return items.reduce((sum, item) => sum + item[key], 0);
}
