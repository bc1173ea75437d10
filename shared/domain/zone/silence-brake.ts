import {emptyOf} from '../fields.ts';
import {isAlive, type Worker} from '../records/worker.ts';
import {type Brake, brakeDocument} from '../records/zone.ts';
import {iso, msOf} from '../time.ts';
import {quietestHost} from '../worker/hosts.ts';
import {isServedFor, type Moment, PROOF_S, type Served, servedBetween} from '../worker/served-time.ts';

/** Share of a zone's heard workers that may be replaced before a probe has spoken. */
const SHARE = 0.2;
/** Seconds of served time. */
const RETURNS_S = 600;
const FURTHER_PROBE_S = 3600;
export const LONGEST_SILENCE_S = 6 * 3600;
const FEWEST_BAD_VERDICTS = 2;

/** Number of nodes that may end at once on evidence about many nodes of a zone. */
export const shareOf = (nodes: number) => Math.max(1, Math.floor(nodes * SHARE));

/**
 * `heard`: workers of the zone that have spoken. `isCrowded`: they fill every slot of the zone. `isLost`: silent for
 * `LONGEST_SILENCE_S`, without a stored shard.
 */
export type Silent = {
  worker: Worker;
  heard: number;
  isCrowded: boolean;
  isLost: boolean;
  silent_s: number;
};

/** Verdict on a silent worker. `judged`: a probe has spoken, so the worker is dead and ends. */
export type Verdict = 'held' | 'ends' | 'judged';

export function decideSilence(
  before: Brake | null,
  {worker, heard, isCrowded, isLost, silent_s}: Silent,
  {now, served}: Moment,
): {verdict: Verdict; brake: Brake} {
  const brake = {...(before ?? newBrake(now)), active_at: iso(now)};
  if (wasSilentWhenAnotherSpoke(brake, worker, silent_s, served)) return {verdict: 'judged', brake};
  if (isLost) return {verdict: 'ends', brake};
  const probes_due = brake.probes_due + 1;
  if (brake.replaced < shareOf(heard))
    return {
      verdict: 'ends',
      brake: {...brake, replaced: brake.replaced + 1, replaced_at: iso(now), probes_due},
    };
  if (isCrowded && brake.probes_due > 0) return {verdict: 'ends', brake: {...brake, replaced_at: iso(now)}};
  const isTime = brake.probed_at === null || isServedFor(served, brake.probed_at, FURTHER_PROBE_S);
  if (brake.bad_verdicts >= FEWEST_BAD_VERDICTS && isTime)
    return {verdict: 'ends', brake: {...brake, probed_at: iso(now), probes_due}};
  return {verdict: 'held', brake};
}

function wasSilentWhenAnotherSpoke({spoke_at}: Brake, worker: Worker, silent_s: number, served: Served) {
  if (spoke_at === null) return false;
  return servedBetween(served, quietestHost(worker).at ?? worker.phase_since_at, spoke_at) > silent_s * 1000;
}

function newBrake(now: number): Brake {
  const empty = emptyOf(brakeDocument.shape);
  return {...empty, since_at: iso(now), active_at: iso(now), held_usd_per_hour: 0};
}

/**
 * The brake after the first words of workers of its zone. A first word since the episode began, and since the last replacement,
 * renews the share. The word counts after `PROOF_S`, when the heartbeats of all healthy workers have arrived too.
 * After a network outage, the first worker to speak is no evidence against the others.
 * The brake is off after `RETURNS_S` without a silent worker.
 */
export function afterHellos(brake: Brake, workers: readonly Worker[], {served}: Moment): Brake | null {
  const hellos = [brake, ...workers]
    .flatMap(({hello_at}) => (hello_at !== null && hello_at > brake.since_at ? hello_at : []))
    .sort();
  const spoke_at = hellos.findLast(at => isServedFor(served, at, PROOF_S));
  const hello_at = hellos.find(at => !isServedFor(served, at, PROOF_S)) ?? null;
  if (spoke_at !== undefined) {
    const {active_at, held, held_usd_per_hour, replaced, replaced_at, probes_due} = brake;
    const isUsed = replaced_at !== null && replaced_at > spoke_at;
    const used = isUsed ? {replaced, replaced_at, probes_due} : {};
    return {...newBrake(msOf(spoke_at)), active_at, held, held_usd_per_hour, spoke_at, hello_at, ...used};
  }
  if (isServedFor(served, brake.active_at, RETURNS_S)) return null;
  return hello_at === brake.hello_at ? brake : {...brake, hello_at};
}

/** The brake after an unheard node. An unheard probe of this episode is a bad verdict; the first is probed again. */
export function afterUnheard(brake: Brake, worker: Worker): Brake {
  if (!isProbeOf(brake, worker)) return brake;
  const bad_verdicts = brake.bad_verdicts + 1;
  const probes_due = brake.probes_due + (bad_verdicts < FEWEST_BAD_VERDICTS ? 1 : 0);
  return {...brake, bad_verdicts, probes_due};
}

/** The brake after a node that was refused or taken before its host spoke. A probe that was lost so is no verdict: another one is due. */
export function afterLostProbe(brake: Brake, worker: Worker): Brake {
  if (worker.hello_at !== null || !isProbeOf(brake, worker)) return brake;
  return {...brake, probes_due: brake.probes_due + 1};
}

function isProbeOf({since_at}: Brake, {is_probe, born_at}: Worker): boolean {
  return is_probe && born_at !== null && born_at > since_at;
}

export function afterCreate(brake: Brake): Brake {
  return {...brake, probes_due: Math.max(0, brake.probes_due - 1)};
}

/** The brake with the number and the price of the workers that it holds, for people to read. */
export function withHeld(brake: Brake, held: readonly Worker[]): Brake {
  const prices = held.map(({usd_per_hour}) => usd_per_hour);
  const isKnown = !prices.includes(null);
  const usd = prices.reduce<number>((sum, price) => sum + (price ?? 0), 0);
  return {...brake, held: held.length, held_usd_per_hour: isKnown ? usd : null};
}

export function heardByZone(workers: Iterable<Worker>): Map<string, number> {
  const heard = new Map<string, number>();
  for (const worker of workers)
    if (isHeard(worker)) heard.set(worker.zone, (heard.get(worker.zone) ?? 0) + 1);
  return heard;
}

export function isHeard(worker: Worker): boolean {
  return isAlive(worker) && (worker.hello_at !== null || worker.heartbeat_at !== null);
}
