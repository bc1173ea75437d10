import {iso, msOf} from '../time.ts';
import {isServedFor, type Moment, PROOF_S, type Served, servedBetween} from '../worker/served-time.ts';
import {isAlive, type Worker} from '../worker/worker.ts';
import {type Boots, withoutTry} from './breakers.ts';

/**
 * The silence of many workers of one zone may be our fault, and not theirs. A share of them is replaced, and the replacements are
 * the probes. Silent workers beyond the share are held: they keep their nodes and charge no stream. A probe that speaks shows that
 * silent workers are dead, and all of them end. A probe that stays unheard is a bad verdict.
 */
export type Brake = {
  /** When the first silent worker of this episode was replaced or held. */
  since_at: string;
  /** When a silent worker was last replaced or held. */
  active_at: string;
  /** Silent workers that were replaced out of the share. */
  replaced: number;
  /** Probes still to be created: no stop of creates holds them up. */
  probes_due: number;
  /** Probes that stayed unheard. */
  bad_verdicts: number;
  /** When the last further probe was granted, after two bad verdicts. */
  probed_at: string | null;
  /** When a worker of the zone first spoke since the episode before this one began. */
  spoke_at: string | null;
  /** Workers that are held now, and the dollars an hour of their nodes; null where a price is unknown. */
  held: number;
  held_usd_per_hour: number | null;
};

/** The part of a zone's heard workers that may be replaced before a probe has spoken. */
const SHARE = 0.2;
/** Seconds of served time. */
const RETURNS_S = 600;
const FURTHER_PROBE_S = 3600;
export const LONGEST_SILENCE_S = 6 * 3600;
const FEWEST_BAD_VERDICTS = 2;

/** How many of a zone's nodes evidence about many may end at once. */
export function shareOf(nodes: number): number {
  return Math.max(1, Math.floor(nodes * SHARE));
}

/** `heard`: workers of the zone that have spoken. `isLost`: silent for `LONGEST_SILENCE_S`, without a stored shard. */
export type Silent = {worker: Worker; heard: number; isLost: boolean; silent_s: number};

/** The end of a silent worker, or not. `judged`: it ends because a probe has spoken, so the silence is its own. */
export type Verdict = 'held' | 'ends' | 'judged';

/** Decides about a silent worker, and answers the brake after that. */
export function decideSilence(
  before: Brake | null,
  {worker, heard, isLost, silent_s}: Silent,
  {now, served}: Moment,
): {verdict: Verdict; brake: Brake} {
  const brake = {...(before ?? newBrake(now)), active_at: iso(now)};
  if (wasSilentWhenAnotherSpoke(brake, worker, silent_s, served)) return {verdict: 'judged', brake};
  if (isLost) return {verdict: 'ends', brake};
  const probes_due = brake.probes_due + 1;
  if (brake.replaced < shareOf(heard))
    return {verdict: 'ends', brake: {...brake, replaced: brake.replaced + 1, probes_due}};
  const isTime = brake.probed_at === null || isServedFor(served, brake.probed_at, FURTHER_PROBE_S);
  if (brake.bad_verdicts >= FEWEST_BAD_VERDICTS && isTime)
    return {verdict: 'ends', brake: {...brake, probed_at: iso(now), probes_due}};
  return {verdict: 'held', brake};
}

function wasSilentWhenAnotherSpoke(
  {spoke_at}: Brake,
  worker: Worker,
  silent_s: number,
  served: Served,
): boolean {
  if (spoke_at === null) return false;
  return servedBetween(served, worker.heartbeat_at ?? worker.phase_since_at, spoke_at) > silent_s * 1000;
}

function newBrake(now: number): Brake {
  return {
    ...{since_at: iso(now), active_at: iso(now), replaced: 0, probes_due: 0, bad_verdicts: 0},
    ...{probed_at: null, spoke_at: null, held: 0, held_usd_per_hour: 0},
  };
}

/**
 * The brake after what the workers of its zone have said. A worker that spoke for the first time since the episode began gives the
 * share back: workers that fall silent later are judged anew. Its word counts `PROOF_S` later, when the heartbeats of all healthy
 * workers have come as well: after an outage of the network, the first to speak is no evidence against the others. Without a silent
 * worker for `RETURNS_S`, the brake is off.
 */
export function afterHellos(brake: Brake, workers: readonly Worker[], {served}: Moment): Brake | null {
  const spoke = workers.flatMap(({hello_at}) =>
    hello_at !== null && hello_at > brake.since_at && isServedFor(served, hello_at, PROOF_S) ? hello_at : [],
  );
  const spoke_at = spoke.sort().at(-1);
  if (spoke_at !== undefined) {
    const {active_at, held, held_usd_per_hour} = brake;
    return {...newBrake(msOf(spoke_at)), active_at, held, held_usd_per_hour, spoke_at};
  }
  return isServedFor(served, brake.active_at, RETURNS_S) ? null : brake;
}

/** A node stayed unheard. If it was a probe of this episode, that is a bad verdict; before two of them it is tried again. */
export function afterUnheard(brake: Brake, worker: Worker): Brake {
  if (!isProbeOf(brake, worker)) return brake;
  const bad_verdicts = brake.bad_verdicts + 1;
  const probes_due = brake.probes_due + (bad_verdicts < FEWEST_BAD_VERDICTS ? 1 : 0);
  return {...brake, bad_verdicts, probes_due};
}

/**
 * A node was refused, or ended before it could speak, which says nothing about boots. If it was a probe of this episode, another one is
 * due; if it was the try of a stop of creates, another node is.
 */
export function afterLostBoot<Z extends {brake: Brake | null; boots: Boots}, P extends {boots: Boots}>(
  zone: Z,
  pool: P,
  worker: Worker,
): {zone: Z; pool: P} {
  const {brake} = zone;
  const isProbe = brake !== null && isProbeOf(brake, worker);
  const due = isProbe ? {...zone, brake: {...brake, probes_due: brake.probes_due + 1}} : zone;
  return {zone: withoutTryOf(due, worker), pool: withoutTryOf(pool, worker)};
}

/** The same object where nothing changes: it is not written then. */
function withoutTryOf<T extends {boots: Boots}>(asker: T, {born_at}: Worker): T {
  const boots = withoutTry(asker.boots, born_at);
  return boots === asker.boots ? asker : {...asker, boots};
}

function isProbeOf({since_at}: Brake, {is_probe, born_at}: Worker): boolean {
  return is_probe && born_at !== null && born_at > since_at;
}

/** A node was asked for in the zone. */
export function afterCreate(brake: Brake): Brake {
  return {...brake, probes_due: Math.max(0, brake.probes_due - 1)};
}

/** The brake as people read it: how many workers it holds, and for how much. */
export function withHeld(brake: Brake, held: readonly Worker[]): Brake {
  const prices = held.map(({usd_per_hour}) => usd_per_hour);
  const isKnown = !prices.includes(null);
  const usd = prices.reduce<number>((sum, price) => sum + (price ?? 0), 0);
  return {...brake, held: held.length, held_usd_per_hour: isKnown ? usd : null};
}

/** The workers of each zone that have spoken and are not going. */
export function heardByZone(workers: Iterable<Worker>): Map<string, number> {
  const heard = new Map<string, number>();
  for (const worker of workers) {
    const hasSpoken = worker.hello_at !== null || worker.heartbeat_at !== null;
    if (isAlive(worker) && hasSpoken) heard.set(worker.zone, (heard.get(worker.zone) ?? 0) + 1);
  }
  return heard;
}
