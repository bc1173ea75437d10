/** Checks the limiters: a zone that refuses nodes or loses them young gets few creates, and each count has its cause. */

import {paths} from '../../../shared/domain/names.ts';
import type {Limiter} from '../../../shared/domain/records/limiter.ts';
import type {Zone} from '../../../shared/domain/records/zone.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {UP} from '../../world/tpu-lists.ts';
import {MAX_HANG_MINUTES, MAX_SKEW_MS} from '../conditions/faults.ts';
import {isNewIncarnation} from './nodes.ts';
import {Check} from './violations.ts';

/** The limits of the limiter, repeated here. */
const RETRY_MS = 60_000;
const LONGEST_RETRY_MS = 300_000;
/** Before a zone has given its first node, because a new role is late. */
const FIRST_TRY_MS = 120_000;
const TRY_MS = 3_600_000;
const MOST_FAILED_BOOTS = 5;
/** Minutes after which a tick has seen the word of an agent. */
const WORD_MINUTES = 5;

/** States of a node that exists and is not READY. */
const COMING = ['CREATING', 'PROVISIONING'];
const SHOWN = [
  ...COMING,
  ...['STARTING', 'UNHIDING', 'UNKNOWN', 'REPAIRING'],
  ...['RESTARTING', 'REIMAGING', 'STAGING', 'UNDEFINED_STATUS'],
];

export const ALIVE = ['booting', 'idle', 'working', 'draining'];

export class Zones extends Check {
  /** By pool and zone: the time of the last create. */
  readonly #created_at = new Map<string, number>();
  /** Of one commit: the nodes that their zone listed or refused, and the zones that covered no longer. */
  #given: {zone: string; asked_at: string; isReady: boolean}[] = [];
  #refused: string[] = [];
  #opened: {zone: string; since_at: string | null}[] = [];
  /** Of one commit: the creates that only an open zone gets. */
  #hasty: {zone: string; text: string}[] = [];
  /** Of one commit: the times at which nodes were requested. */
  #asked: {zone: string; asked_at: string}[] = [];
  /** Of one commit: the incarnations that end, and the losses that their zones count. */
  #ends: {zone: string; wasReady: boolean; isFailedBoot: boolean}[] = [];
  #counts: {zone: string; losses: number; unheard: number}[] = [];
  /** By zone: the ends of failed boots, and the first words of agents. */
  readonly #boots = new Map<string, {failed: number[]; spoken: number[]}>();

  /** A zone that is not open gets one create at a time, and a refused slot waits for no other zone. */
  onWorker(before: Document, after: Document): void {
    this.#noteAnswer(before, after);
    if (before.agent_at === null && after.agent_at !== null)
      this.#bootsIn(keyOf(after.pool, after.zone)).spoken.push(this.context.clockwork.now);
    const isRequestedAgain =
      after.phase === 'creating' && before.phase === 'creating' && after.asked_at !== before.asked_at;
    if (!isNewIncarnation(before, after) && !isRequestedAgain) return;
    const {store, config, clockwork} = this.context;
    const pool = after.pool === config.pool.pool ? null : String(after.pool);
    const path = paths.zone(String(after.zone), pool);
    this.#asked.push({zone: path, asked_at: String(after.asked_at)});
    const zone = store.peek(path) as Zone | undefined;
    const key = keyOf(after.pool, after.zone);
    const last = this.#created_at.get(key) ?? Number.NEGATIVE_INFINITY;
    this.#created_at.set(key, clockwork.now);
    if (!zone || this.#isOpen(zone.limiter, after.bundle) || after.is_canary) return;
    // A commit that hangs is later than the time that it names.
    const hung_ms = this.context.storm.hang > 0 ? MAX_HANG_MINUTES * 60_000 : 0;
    const since = clockwork.now - last;
    if (since >= RETRY_MS - 2 * MAX_SKEW_MS - hung_ms) return;
    const text = `${key} is ${zone.limiter.state}, and got a create ${since} ms after another`;
    this.#hasty.push({zone: path, text});
  }

  /** Notes what a zone answered to a request: a listed node, a READY node or a refusal. */
  #noteAnswer(before: Document, after: Document): void {
    const {pool} = this.context.config.pool;
    const zone = paths.zone(String(after.zone), after.pool === pool ? null : String(after.pool));
    const wasComing = before.provider_state === null || COMING.includes(String(before.provider_state));
    const isReady =
      wasComing && UP.includes(String(after.provider_state)) && ALIVE.includes(String(after.phase));
    const isShown =
      wasComing &&
      after.provider_state !== before.provider_state &&
      SHOWN.includes(String(after.provider_state));
    if ((isReady || isShown) && before.asked_at)
      this.#given.push({zone, asked_at: String(before.asked_at), isReady});
    const isRefused = before.phase === 'creating' && after.phase === 'gone' && after.refused === true;
    if (isRefused && /^Failed to create/.test(String(after.last_error))) this.#refused.push(zone);
  }

  /** A refusal closes its zone. A node that was requested since opens it, and nothing else except a message. */
  #checkAnswers(): void {
    const limiterOf = (zone: string) => {
      const found = this.context.store.peek(zone)?.limiter as Limiter | undefined;
      // A document that was left alone lacks the answers of that time.
      return this.context.everAlone.has(zone) ? undefined : found;
    };
    for (const zone of this.#refused)
      if (limiterOf(zone)?.state === 'open') this.breach(`${zone} refused a node and is open`);
    for (const {zone, asked_at, isReady} of this.#given) {
      const {state, since_at} = limiterOf(zone) ?? {};
      if (isReady && state === 'probing' && asked_at > String(since_at))
        this.breach(
          `${zone} gave a node that was requested at ${asked_at}, and is probing since ${since_at}`,
        );
    }
    for (const {zone, since_at} of this.#opened) {
      const isGiven = this.#given.some(node => node.zone === zone && node.asked_at > String(since_at));
      if (!isGiven && !(this.#resumed_at >= String(since_at)))
        this.breach(`${zone} is open again without a node or a later message since ${since_at}`);
    }
    // The node of another slot may open the zone in the same commit.
    for (const {zone, text} of this.#hasty)
      if ((this.context.store.peek(zone)?.limiter as Limiter | undefined)?.state !== 'open')
        this.breach(text);
    for (const {zone, asked_at} of this.#asked) {
      const known_at = limiterOf(zone)?.asked_at;
      if (known_at !== undefined && String(known_at) < asked_at)
        this.breach(`${zone} was asked for a node at ${asked_at}, and knows of a request at ${known_at}`);
    }
    [this.#given, this.#refused, this.#opened, this.#hasty, this.#asked] = [[], [], [], [], []];
  }

  /** Publish time of the message that causes the present commit; empty without one. */
  get #resumed_at(): string {
    const {actor} = this.violations;
    const id = actor && 'topic' in actor && actor.topic === 'control' ? actor.id : undefined;
    return id === undefined ? '' : String(this.context.store.peek(paths.control(id))?.published_at);
  }

  #isOpen({state, cause, bundle}: Limiter, deployed: unknown): boolean {
    return state === 'open' || (cause === 'boots' && bundle !== deployed);
  }

  onIncarnationEnded(worker: string, {cause_kind, last_phase}: Document): void {
    const document = this.context.store.peek(paths.worker(worker));
    const isFailedBoot = ['unheard', 'boot'].includes(String(cause_kind)) && document?.agent_at === null;
    // A refusal is no loss.
    if (['not-needed', 'asked', 'setup'].includes(String(cause_kind))) return;
    const wasReady = ALIVE.includes(String(last_phase));
    const zone = keyOf(document?.pool, document?.zone);
    this.#ends.push({zone, wasReady, isFailedBoot});
    if (isFailedBoot) this.#bootsIn(zone).failed.push(this.context.clockwork.now);
  }

  #bootsIn(zone: string): {failed: number[]; spoken: number[]} {
    const boots = this.#boots.get(zone) ?? {failed: [], spoken: []};
    this.#boots.set(zone, boots);
    return boots;
  }

  /** A limiter counts the boots that failed since an agent spoke. The word counts from the next tick on. */
  #checkBoots(zone: string, was: Limiter, {failed_boots}: Limiter): void {
    const {clockwork, storm} = this.context;
    const failed_ms = Date.parse(was.failed_boot_at ?? '') - MAX_SKEW_MS;
    const isForgotten = failed_boots < was.failed_boots && storm.rollout === 0 && this.#resumed_at === '';
    if (isForgotten && !this.#bootsIn(zone).spoken.some(at => at > failed_ms))
      this.breach(`${zone} forgets ${was.failed_boots} failed boots, and no agent has spoken since`);
    const late_ms = (storm.hang > 0 ? 2 * MAX_HANG_MINUTES : WORD_MINUTES) * 60_000;
    const {failed, spoken} = this.#bootsIn(zone);
    const since = spoken.findLast(at => at < clockwork.now - late_ms) ?? 0;
    const most = failed.filter(at => at > since - MAX_SKEW_MS).length;
    if (failed_boots > most)
      this.breach(`${zone} counts ${failed_boots} failed boots, and ${most} failed since an agent spoke`);
  }

  /** A zone counts the losses of nodes that were preempted or failed, and no others, and the failed boots. */
  override onCommitted(): void {
    this.#checkAnswers();
    for (const zone of new Set([...this.#ends, ...this.#counts].map(({zone}) => zone))) {
      const ends = this.#ends.filter(end => end.zone === zone);
      const counts = this.#counts.filter(count => count.zone === zone);
      const [losses, unheard] = [sumOf(counts, 'losses'), sumOf(counts, 'unheard')];
      const least = ends.filter(({wasReady}) => wasReady).length;
      const isMissed = [...this.context.everAlone].some(path => path.startsWith('zones/'));
      if (!isMissed && (least > losses || losses > ends.length))
        this.breach(`${zone} counts ${losses} losses, and lost ${least} nodes of ${ends.length} that ended`);
      const most = ends.filter(({isFailedBoot}) => isFailedBoot).length;
      // The failed boots of an earlier bundle count for nothing, and the word of an agent clears the count.
      const mayMiss = isMissed || this.context.storm.rollout > 0 || unheard < 0;
      if (unheard > most || (!mayMiss && unheard < most))
        this.breach(`${zone} counts ${unheard} failed boots, and ${most} boots failed`);
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
    const {cause} = (before?.limiter ?? {}) as Partial<Limiter>;
    if (cause === 'person' && (after.limiter as Limiter).cause !== cause && !this.violations.isForOperator)
      this.breach(`${after.pool} was paused by a person, and no message resumed it`);
    const {max_workers} = this.context.config.ceilings;
    if (isLarger && after.version !== 0 && workers > max_workers)
      this.breach(`the pool has ${workers} workers, and ${max_workers} are allowed`);
  }

  /** A limiter leaves its states in time, and a zone that lost three or more nodes, all of them young, gets only canaries. */
  onZone(before: Zone, after: Zone): void {
    const {now} = this.context.clockwork;
    const [was, is] = [before.limiter, after.limiter];
    this.#counts.push({
      zone: keyOf(after.pool ?? this.context.config.pool.pool, after.zone),
      losses: after.losses.length - before.losses.length,
      unheard: is.failed_boots - was.failed_boots,
    });
    if (was.state !== is.state) this.context.see(`a limiter is: ${is.state}`);
    this.#checkLimiter(after.zone, was, is);
    // A document that was left alone lacks the words of that time.
    if (!this.context.everAlone.has(paths.zone(after.zone, after.pool)))
      this.#checkBoots(keyOf(after.pool ?? this.context.config.pool.pool, after.zone), was, is);
    if (was.state !== 'open' && was.cause !== 'boots' && is.state === 'open')
      this.#opened.push({zone: paths.zone(after.zone, after.pool), since_at: was.since_at});
    if (is.asked_at === null || is.asked_at === was.asked_at) return;
    const since = (minutes: number) =>
      before.losses.filter(({ended_at}) => Date.parse(ended_at) > now - minutes * 60_000);
    const isChurning = since(25).length >= 3 && since(35).every(({lived_s}) => lived_s < 300);
    const isCanary = (before.silence_guard?.canaries_due ?? 0) > 0;
    if (isChurning && !isCanary)
      this.breach(`${after.zone} got a create, and lost ${JSON.stringify(since(25))}`);
  }

  /** The state of a limiter agrees with its counts, and it is asked again within its longest wait. */
  #checkLimiter(zone: string, was: Limiter, is: Limiter): void {
    const {state, cause, next_at, since_at, asked_at, failed_boots} = is;
    if ((state === 'open') !== (next_at === null) || (state === 'open') !== (cause === null))
      this.breach(`${zone} is ${state} for ${cause}, with a next request at ${next_at}`);
    if (cause === 'boots' && failed_boots < MOST_FAILED_BOOTS)
      this.breach(`${zone} is stopped after ${failed_boots} failed boots`);
    if (
      was.cause !== 'boots' &&
      cause !== 'boots' &&
      failed_boots >= MOST_FAILED_BOOTS &&
      was.state !== 'stopped'
    )
      this.breach(`${zone} is ${state} after ${failed_boots} failed boots`);
    if (cause !== was.cause && !this.#hasRefusedFor(zone, is))
      this.breach(`${zone} is ${state} for ${cause}, and has refused no node for it: ${is.reason}`);
    if (next_at === null || next_at === was.next_at) return;
    const from = Math.max(...[since_at, asked_at].flatMap(at => (at === null ? [] : Date.parse(at))));
    const most_ms = state === 'stopped' ? TRY_MS : LONGEST_RETRY_MS;
    const wait_ms = Date.parse(next_at) - from;
    const isTried = state === 'stopped' && asked_at !== was.asked_at;
    const mayBeEarly = !is.has_given && (cause === 'permission' || cause === 'unknown');
    if (isTried && wait_ms < (mayBeEarly ? FIRST_TRY_MS : TRY_MS) - 2 * MAX_SKEW_MS)
      this.breach(`${zone} is stopped for ${cause}, and is tried again after ${wait_ms} ms`);
    const isTryLost = state === 'stopped' && was.state === 'stopped';
    if (wait_ms > most_ms + 2 * MAX_SKEW_MS || (wait_ms < RETRY_MS - 2 * MAX_SKEW_MS && !isTryLost))
      this.breach(`${zone} is ${state}, and is asked again after ${wait_ms} ms`);
  }

  /** A node that vanishes while it is created is a refusal too, and so is a request that expires in the queue. */
  #hasRefusedFor(zone: string, {cause, reason}: Limiter): boolean {
    if (cause !== 'no-capacity' && cause !== 'quota') return true;
    return (
      this.context.tpus.zone(zone).refusals.has(cause) ||
      /^(it vanished|the queue gave it nothing)/.test(String(reason))
    );
  }

  override onWipe(): void {
    this.#created_at.clear();
    this.#boots.clear();
  }
}

/** Each pool knows a zone by itself. */
export function keyOf(pool: unknown, zone: unknown): string {
  return `${pool} in ${zone}`;
}

function sumOf<K extends string>(items: readonly Record<K, number>[], key: K): number {
  return items.reduce((sum, item) => sum + item[key], 0);
}
