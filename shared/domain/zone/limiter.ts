import {type Constraint, constraint, minuteText} from '../records/constraint.ts';
import {type Limiter, NO_CAUSE, NO_FAILED_BOOTS, OPEN} from '../records/limiter.ts';
import type {Worker} from '../records/worker.ts';
import {isOlderThan, iso, msOf} from '../time.ts';
import type {Refusal} from '../worker/provider-states.ts';

export type RetryLimits = {
  /** Shortest and longest seconds between two requests to a zone that refuses nodes. */
  retry_s: number;
  longest_retry_s: number;
};

const MOST_FAILED_BOOTS = 5;
/** Seconds between two requests during a stop. They are wall-clock time, because no time is served without a living worker. */
const TRY_S = 3600;
/** The first of them where the zone has given no node yet, because Google spreads a new role within some minutes. */
const FIRST_TRIES_S = [120, 300, 900];
/** After an hour of refusals, the next request waits for a twenty-fifth of that hour. */
const SHARE_OF_REFUSALS = 1 / 25;

/** The state for nodes of this bundle: failed boots of another bundle do not stop their creates. */
export function stateOf({state, cause, bundle}: Limiter, deployed: string): Limiter['state'] {
  return cause === 'boots' && bundle !== deployed ? 'open' : state;
}

export function isDue(limiter: Limiter, bundle: string, now: number): boolean {
  return stateOf(limiter, bundle) === 'open' || isOlderThan(limiter.next_at, 0, now);
}

/** The limiter after a request. The next tick, or the answer of Cloud TPU, shows whether the zone gave the node. */
export function afterAsk(limiter: Limiter, bundle: string, limits: RetryLimits, now: number): Limiter {
  const asked = {...limiter, asked_at: iso(now)};
  const state = stateOf(limiter, bundle);
  switch (state) {
    case 'open':
      return limiter.state === 'open' ? asked : {...OPEN, has_given: limiter.has_given, asked_at: iso(now)};
    case 'probing':
      return {...asked, next_at: iso(now + retryAfter(limiter, limits, now) * 1000)};
    case 'stopped':
      return {...asked, next_at: iso(now + tryAfter(limiter) * 1000)};
    default:
      return state satisfies never;
  }
}

/** Google may know the mend of such a refusal some minutes late. */
const isSlow = (cause: Limiter['cause']) => cause === 'permission' || cause === 'unknown';

const isSameRefusal = (kind: Refusal, cause: Limiter['cause']) =>
  kind === cause || (isSlow(kind) && isSlow(cause));

/** Seconds until the next request of a zone that is stopped, after its counted refusals. */
function tryAfter({cause, has_given, refusals}: Limiter): number {
  const mayBeEarly = !has_given && isSlow(cause);
  return (mayBeEarly ? FIRST_TRIES_S[refusals] : undefined) ?? TRY_S;
}

/** Seconds until the next request: a share of the time since the first refusal, within the limits. */
function retryAfter({since_at}: Limiter, {retry_s, longest_retry_s}: RetryLimits, now: number): number {
  const refused_s = since_at === null ? 0 : (now - msOf(since_at)) / 1000;
  return Math.max(retry_s, Math.min(longest_retry_s, refused_s * SHARE_OF_REFUSALS));
}

const NEEDS_PERSON: readonly Refusal[] = ['permission', 'policy', 'bad-request', 'unknown'];

/** `isLate`: the zone had listed the node before. `asked_at`: the time of the refused request. */
export type RefusedNode = {kind: Refusal; reason: string; isLate: boolean; asked_at: string | null};

/** The limiter after a refusal. Returns the same object if the refusal shows nothing new. */
export function afterRefusal(
  limiter: Limiter,
  {kind, reason, isLate, asked_at}: RefusedNode,
  {retry_s}: RetryLimits,
  now: number,
): Limiter {
  const {state, cause, since_at} = limiter;
  const refuses_late = limiter.refuses_late || isLate;
  const needsPerson = NEEDS_PERSON.includes(kind);
  const isCounted = since_at !== null && asked_at !== null && asked_at > since_at;
  const refusals = limiter.refusals + (isCounted ? 1 : 0);
  if (state === 'stopped') {
    if (isCounted && isSameRefusal(kind, cause)) return {...limiter, cause: kind, reason, refusals};
    // A different answer to the hourly try shows that the cause of the stop was fixed.
    const isMended = isCounted && kind !== 'transient' && cause !== 'boots' && cause !== 'person';
    if (!isMended) return limiter;
  }
  if (!needsPerson && state === 'probing')
    return refuses_late === limiter.refuses_late && kind === cause && !isCounted
      ? limiter
      : {...limiter, cause: kind, reason, refuses_late, refusals};
  const wait_s = needsPerson ? tryAfter({...limiter, cause: kind, refusals: 0}) : retry_s;
  const next_at = iso(now + wait_s * 1000);
  const next = {
    state: needsPerson ? ('stopped' as const) : ('probing' as const),
    cause: kind,
    reason,
    next_at,
  };
  // The clock of another function may have dated the last request later than now.
  const since_ms = Math.max(now, limiter.asked_at === null ? 0 : msOf(limiter.asked_at));
  return {...limiter, ...next, since_at: iso(since_ms), refusals: 1, refuses_late};
}

/** Returns the zone's latest refusal if it came after `asked_at`: a request of that time will fail for the same reason. */
export function refusedSince(
  {state, cause, reason, since_at}: Limiter,
  asked_at: string | null,
): Pick<RefusedNode, 'kind' | 'reason'> | undefined {
  const isAnswer =
    state !== 'open' && cause !== null && cause !== 'boots' && cause !== 'person' && cause !== 'transient';
  if (!isAnswer || reason === null || since_at === null || asked_at === null) return undefined;
  return asked_at <= since_at ? {kind: cause, reason} : undefined;
}

/** The limiter after the zone listed a node that was requested at `asked_at`. A request from before the first refusal proves nothing. */
export function afterGiven(
  limiter: Limiter,
  {asked_at, isReady}: {asked_at: string | null; isReady: boolean},
): Limiter {
  const {state, cause, since_at, refuses_late, has_given} = limiter;
  const given = has_given ? limiter : {...limiter, has_given: true};
  if (cause === 'person') return limiter;
  if (state === 'open' || cause === 'boots') return given;
  const isEvidence = asked_at !== null && since_at !== null && asked_at > since_at;
  if (!isEvidence || (refuses_late && !isReady)) return given;
  return {...given, ...NO_CAUSE, refuses_late: false};
}

/** Event of a zone whose limiter changes its state or counts a refusal; undefined otherwise. The stop after failed boots has its own alert. */
export function limiterEvent(zone: string, before: Limiter, after: Limiter): string | undefined {
  if (after.cause === 'boots') return undefined;
  if (before.state === after.state && before.refusals < after.refusals)
    return `${zone} gives no node: ${after.reason}; ${refusedText(after)}`;
  if (before.state === after.state) return undefined;
  switch (after.state) {
    case 'open':
      return `${zone} gives nodes again; its creates are no longer limited`;
    case 'probing':
      return `${zone} gives no node: ${after.reason}. It gets one create at a time until it gives one, and other zones get the rest`;
    case 'stopped':
      return `${zone} refuses every node: ${after.reason}. It gets few creates, at last one an hour; mend the cause, then resume the pool`;
    default:
      return after.state satisfies never;
  }
}

/** `refused 41 times since 12:46, next try 12:51`. */
function refusedText({refusals, since_at, next_at}: Limiter): string {
  const times = `refused ${refusals === 1 ? 'once' : `${refusals} times`}`;
  const since = since_at === null ? '' : ` since ${minuteText(since_at)}`;
  return `${times}${since}${next_at === null ? '' : `, next try ${minuteText(next_at)}`}`;
}

/** Key that makes all refusals of a zone since it closed one event; undefined for an event of its own. */
export function refusalsOf(pool: string, zone: string, {state, cause, since_at}: Limiter) {
  if (state === 'open' || cause === 'boots' || cause === 'person') return undefined;
  return `${pool} in ${zone} refuses since ${since_at}`;
}

/** Why the limiter allows only one request at a time, or none; undefined if it is open. `about`: its zone or its pool. */
export function limiterConstraint(about: string, limiter: Limiter, bundle: string): Constraint | undefined {
  const {cause, reason, since_at, next_at, failed_boots, refusals} = limiter;
  if (stateOf(limiter, bundle) === 'open' || cause === null) return undefined;
  const times = {since_at, refusals, next_try_at: next_at};
  switch (cause) {
    case 'boots':
      return constraint(
        'failed-boots',
        about,
        `${failed_boots} boots in a row failed, the last: ${reason}`,
        times,
      );
    case 'person':
      return constraint('pool-paused', about, null, times);
    case 'no-capacity':
      return constraint('zone', about, reason, times);
    case 'transient':
      return constraint('zone', about, `it accepts creates and makes no node: ${reason}`, times);
    case 'bad-request':
      return constraint('no-such-type', about, reason, times);
    case 'unknown':
      return constraint('unknown-answer', about, reason, times);
    case 'quota':
    case 'policy':
    case 'permission':
      return constraint(cause, about, reason, times);
    default:
      return cause satisfies never;
  }
}

/** The limiter of a pool that a person stops: no requests at all until `resume`. */
export function afterPause(limiter: Limiter, now: number): Limiter {
  const reason = 'a person paused the pool';
  return {...limiter, state: 'stopped', cause: 'person', reason, since_at: iso(now), next_at: null};
}

/** The limiter after a failed boot of this bundle. If Cloud TPU takes a node, that is no failed boot. */
export function afterFailedBoot(limiter: Limiter, bundle: string, reason: string, now: number): Limiter {
  const before = limiter.bundle === bundle ? limiter : withoutFailedBoots(limiter);
  const failed_boots = before.failed_boots + 1;
  const counted = {...before, failed_boots, failed_boot_at: iso(now), bundle};
  if (failed_boots < MOST_FAILED_BOOTS) return counted;
  if (counted.state === 'stopped') return counted.cause === 'boots' ? {...counted, reason} : counted;
  const next_at = iso(now + TRY_S * 1000);
  return {...counted, state: 'stopped', cause: 'boots', reason, since_at: iso(now), next_at};
}

/** The limiter after the first message of an agent, at `agent_at`. A message of a host during its boot is no success. */
export function afterAgent(limiter: Limiter, agent_at: string): Limiter {
  const {failed_boot_at} = limiter;
  return failed_boot_at !== null && agent_at > failed_boot_at ? withoutFailedBoots(limiter) : limiter;
}

function withoutFailedBoots(limiter: Limiter): Limiter {
  const opened = limiter.cause === 'boots' ? {...limiter, ...NO_CAUSE} : limiter;
  return {...opened, ...NO_FAILED_BOOTS};
}

/**
 * The limiter after a node that was refused or taken before its agent sent anything. A try during a stop that ends this way proves nothing
 * about boots: another try follows.
 */
export function afterLostTry(
  limiter: Limiter,
  {is_canary, born_at}: Pick<Worker, 'is_canary' | 'born_at'>,
  {retry_s}: RetryLimits,
  now: number,
): Limiter {
  const {state, cause, since_at} = limiter;
  const isTry = state === 'stopped' && cause === 'boots' && !is_canary;
  if (!isTry || born_at === null || since_at === null || born_at <= since_at) return limiter;
  return {...limiter, next_at: iso(now + retry_s * 1000)};
}
