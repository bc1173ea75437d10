import {emptyOf} from '../fields.ts';
import {isAlive, type Worker} from '../records/worker.ts';
import {type SilenceGuard, silenceGuard} from '../records/zone.ts';
import {iso, msOf} from '../time.ts';
import {quietestHost} from '../worker/hosts.ts';
import {isServedFor, type Moment, PROOF_S, type Served, servedBetween} from '../worker/served-time.ts';

/** Share of a zone's workers that may be replaced before a canary has sent a heartbeat. */
const SHARE = 0.2;
/** Seconds of served time. */
const RETURNS_S = 600;
const FURTHER_CANARY_S = 3600;
export const LONGEST_SILENCE_S = 6 * 3600;
const FEWEST_BAD_VERDICTS = 2;

/** Number of nodes that may end at once on evidence about many nodes of a zone. */
export const shareOf = (nodes: number) => Math.max(1, Math.floor(nodes * SHARE));

/**
 * `speakers`: workers of the zone that have sent a heartbeat. `isCrowded`: they fill every slot of the zone. `isLost`: silent for
 * `LONGEST_SILENCE_S`, without a stored shard.
 */
export type Silent = {
  worker: Worker;
  speakers: number;
  isCrowded: boolean;
  isLost: boolean;
  silent_s: number;
};

/** Verdict on a silent worker. `judged`: a canary has sent a heartbeat, so the silent worker is dead and ends. */
export type Verdict = 'held' | 'ends' | 'judged';

export function decideSilence(
  before: SilenceGuard | null,
  {worker, speakers, isCrowded, isLost, silent_s}: Silent,
  {now, servedTime}: Moment,
): {verdict: Verdict; silence_guard: SilenceGuard} {
  const silence_guard = {...(before ?? newSilenceGuard(now)), active_at: iso(now)};
  if (wasSilentWhenAnotherSpoke(silence_guard, worker, silent_s, servedTime))
    return {verdict: 'judged', silence_guard};
  if (isLost) return {verdict: 'ends', silence_guard};
  const canaries_due = silence_guard.canaries_due + 1;
  const replaced = silence_guard.replaced + 1;
  if (replaced <= shareOf(speakers))
    return {
      verdict: 'ends',
      silence_guard: {...silence_guard, replaced, replaced_at: iso(now), canaries_due},
    };
  if (isCrowded && silence_guard.canaries_due > 0)
    return {verdict: 'ends', silence_guard: {...silence_guard, replaced_at: iso(now)}};
  const isTime =
    silence_guard.canary_at === null || isServedFor(servedTime, silence_guard.canary_at, FURTHER_CANARY_S);
  if (silence_guard.bad_verdicts >= FEWEST_BAD_VERDICTS && isTime)
    return {verdict: 'ends', silence_guard: {...silence_guard, canary_at: iso(now), canaries_due}};
  return {verdict: 'held', silence_guard};
}

function wasSilentWhenAnotherSpoke(
  {spoke_at}: SilenceGuard,
  worker: Worker,
  silent_s: number,
  served: Served,
) {
  if (spoke_at === null) return false;
  return servedBetween(served, quietestHost(worker).at ?? worker.phase_since_at, spoke_at) > silent_s * 1000;
}

function newSilenceGuard(now: number): SilenceGuard {
  const empty = emptyOf(silenceGuard.shape);
  return {...empty, since_at: iso(now), active_at: iso(now), held_usd_per_hour: 0};
}

/**
 * The silence guard after the first heartbeats of workers of its zone. A first heartbeat since the episode began, and since the last
 * replacement, renews the share. It counts after `PROOF_S`, when the heartbeats of all healthy workers have arrived too:
 * after a network outage, the first worker that gets through is no evidence against the others.
 * The silence guard is off after `RETURNS_S` without a silent worker.
 */
export function afterHellos(
  silence_guard: SilenceGuard,
  workers: readonly Worker[],
  {servedTime}: Moment,
): SilenceGuard | null {
  const hellos = [silence_guard, ...workers]
    .flatMap(({hello_at}) => (hello_at !== null && hello_at > silence_guard.since_at ? hello_at : []))
    .sort();
  const spoke_at = hellos.findLast(at => isServedFor(servedTime, at, PROOF_S));
  const hello_at = hellos.find(at => !isServedFor(servedTime, at, PROOF_S)) ?? null;
  if (spoke_at !== undefined) {
    const {active_at, held, held_usd_per_hour, replaced, replaced_at, canaries_due} = silence_guard;
    const isUsed = replaced_at !== null && replaced_at > spoke_at;
    const used = isUsed ? {replaced, replaced_at, canaries_due} : {};
    const kept = {active_at, held, held_usd_per_hour, spoke_at, hello_at};
    return {...newSilenceGuard(msOf(spoke_at)), ...kept, ...used};
  }
  if (isServedFor(servedTime, silence_guard.active_at, RETURNS_S)) return null;
  return hello_at === silence_guard.hello_at ? silence_guard : {...silence_guard, hello_at};
}

/** The silence guard after a node that stayed silent. A silent canary of this episode is a bad verdict; another canary follows the first one. */
export function afterUnheard(silence_guard: SilenceGuard, worker: Worker): SilenceGuard {
  if (!isCanaryOf(silence_guard, worker)) return silence_guard;
  const bad_verdicts = silence_guard.bad_verdicts + 1;
  const canaries_due = silence_guard.canaries_due + (bad_verdicts < FEWEST_BAD_VERDICTS ? 1 : 0);
  return {...silence_guard, bad_verdicts, canaries_due};
}

/** The silence guard after a node that was refused or taken before its host sent anything: a canary gave no verdict, so another one is due. */
export function afterLostCanary(silence_guard: SilenceGuard, worker: Worker): SilenceGuard {
  if (worker.hello_at !== null || !isCanaryOf(silence_guard, worker)) return silence_guard;
  return {...silence_guard, canaries_due: silence_guard.canaries_due + 1};
}

function isCanaryOf({since_at}: SilenceGuard, {is_canary, born_at}: Worker): boolean {
  return is_canary && born_at !== null && born_at > since_at;
}

export function afterCreate(silence_guard: SilenceGuard): SilenceGuard {
  return {...silence_guard, canaries_due: Math.max(0, silence_guard.canaries_due - 1)};
}

/** The silence guard with the number and the price of the workers that it holds, for people to read. */
export function withHeld(silence_guard: SilenceGuard, held: readonly Worker[]): SilenceGuard {
  const prices = held.map(({usd_per_hour}) => usd_per_hour);
  const isKnown = !prices.includes(null);
  const usd = prices.reduce<number>((sum, price) => sum + (price ?? 0), 0);
  return {...silence_guard, held: held.length, held_usd_per_hour: isKnown ? usd : null};
}

export function speakersByZone(workers: Iterable<Worker>): Map<string, number> {
  const heard = new Map<string, number>();
  for (const worker of workers)
    if (hasSpoken(worker)) heard.set(worker.zone, (heard.get(worker.zone) ?? 0) + 1);
  return heard;
}

export function hasSpoken(worker: Worker): boolean {
  return isAlive(worker) && (worker.hello_at !== null || worker.heartbeat_at !== null);
}
