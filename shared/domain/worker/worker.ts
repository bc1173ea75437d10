import {accrue, type Costs} from '../billing/cost.ts';
import type {Said} from '../publish-order.ts';
import {isOlderThan, iso, msOf} from '../time.ts';
import type {Shown, Symptom} from './provider-states.ts';

/**
 * The life of a slot. `creating`: the node was asked for, at once or in the queue. `booting`: the node is READY, its agent has
 * not spoken. `idle` and `working`: the agent speaks. `draining`: it finishes its shard and gets nothing more. `deleting`: the
 * node must go. `gone`: there is no node; a wanted slot is created again from here, with the next incarnation.
 */
export type Phase = 'creating' | 'booting' | 'idle' | 'working' | 'draining' | 'deleting' | 'gone';

/** A stream that may be the reason why its worker ends. It is charged when the worker does, unless more of it was stored since. */
export type Suspect = {work: string; epoch: number; total_shards: number};

export type Worker = Shown & {
  name: string;
  pool: string;
  zone: string;
  slot: number;
  phase: Phase;
  phase_since_at: string;
  /** When the node of this life was first seen READY, or may have been if nobody could look: from then on it is paid for. */
  ready_at: string | null;
  /** Dollars an hour, as known when this life was asked for. */
  usd_per_hour: number | null;
  /** What this life has cost up to `costs_at`, by run: see cost.ts. */
  costs: Costs;
  costs_at: string | null;
  /** The run that its time belongs to. */
  charged_to: string | null;
  /** Grows with every create, so that a node, a heartbeat or a message of an earlier life is recognised. */
  incarnation: number;
  /** When this incarnation was asked for, and when its agent first spoke. */
  born_at: string | null;
  hello_at: string | null;
  /** The worker bundle of this life, and whether its node is a probe of its zone: see brake.ts. */
  bundle: string | null;
  is_probe: boolean;
  /** How the node of this life was asked for, and until when the queue may give it. */
  provisioning: 'node' | 'queued-resource' | null;
  valid_until_at: string | null;
  /** Since when Cloud TPU's words for it mean what they mean; see provider.ts. */
  provider_since_at: string | null;
  /** When a look last found the node coming and not READY yet, give or take two minutes. */
  unready_at: string | null;
  /** Since when complete lists leave out a node that was shown before; null while it is shown. */
  missing_since_at: string | null;
  /** Of this node since it was READY, the newest last. */
  symptoms: Symptom[];
  /** What its agent said that this machine cannot do: it is to be replaced. */
  fault: string | null;
  heartbeat_at: string | null;
  /** What the agent says it does: setup, idle, loading, compiling, running, uploading. */
  activity: string | null;
  /** `my-run/007`, and the epoch of the lease that it has of it. */
  work: string | null;
  epoch: number | null;
  /** When it was given that lease, or last said that it has it; null when its host has begun anew since. */
  claimed_at: string | null;
  /** Its run is paused: at its next heartbeat it is told to finish its shard and to give the stream back. */
  drains: boolean;
  /** The stream, as in `work`, that it lost by falling silent or by a failure of its machine, and its shards by then. */
  suspect: Suspect | null;
  samples_done: number | null;
  samples_total: number | null;
  tokens_done: number | null;
  shards_done: number | null;
  tokens_per_s: number | null;
  /** When it last did something new: a heartbeat proves that the agent lives, and nothing about its work. */
  progress_at: string | null;
  /** Creating waits until then after the zone refused. */
  blocked_until_at: string | null;
  /** When the last create or delete was asked of Cloud TPU, to ask again when nothing comes of it. */
  asked_at: string | null;
  recreate: boolean;
  /** Deleted by a message: it stays away until it is asked for again. */
  held: boolean;
  said: Said;
  last_death: string | null;
  last_error: string | null;
  created_at: string;
  updated_at: string;
};

export function newWorker(
  name: string,
  slot: {pool: string; zone: string; slot: number},
  now: number,
): Worker {
  return {
    name,
    ...slot,
    phase: 'gone',
    // Gone since ever: any look at the nodes is newer.
    phase_since_at: iso(0),
    ready_at: null,
    usd_per_hour: null,
    ...NO_COSTS,
    incarnation: 0,
    born_at: null,
    hello_at: null,
    bundle: null,
    is_probe: false,
    suspect: null,
    ...NOTHING_SHOWN,
    provisioning: null,
    valid_until_at: null,
    fault: null,
    heartbeat_at: null,
    activity: null,
    ...NO_WORK,
    progress_at: null,
    blocked_until_at: null,
    asked_at: null,
    recreate: false,
    held: false,
    said: {},
    last_death: null,
    last_error: null,
    created_at: iso(now),
    updated_at: iso(now),
  };
}

/** More than a few ticks: who has seen nothing new for longer may not have been able to look. */
const UNSEEN_MS = 300_000;

/**
 * From when a node is paid for that is found READY `now`: from now, or, if nobody may have looked for long, from the last of the
 * instants before which it was not READY. That is too early by what was left of making it then, or too late by less than `UNSEEN_MS`.
 */
export function readySince(bounds: readonly (string | null)[], now: number): string {
  const since = Math.max(...bounds.map(at => (at === null ? 0 : msOf(at))));
  return iso(now - since > UNSEEN_MS ? since : now);
}

/** The phases in which an agent may hold a lease and be heard. */
export function isAlive(worker: Worker): boolean {
  return worker.phase === 'booting' || isSpeaking(worker);
}

function isSpeaking(worker: Worker): boolean {
  return worker.phase === 'idle' || worker.phase === 'working' || worker.phase === 'draining';
}

/** Whether the life is over: its node goes or is gone. */
export function hasEnded({phase}: Pick<Worker, 'phase'>): boolean {
  return phase === 'deleting' || phase === 'gone';
}

export function isBlocked(worker: Worker, now: number): boolean {
  return worker.blocked_until_at !== null && !isOlderThan(worker.blocked_until_at, 0, now);
}

/** Of a slot without a node. */
export const NOTHING_SHOWN = {
  provider_state: null,
  health: null,
  queue_state: null,
  provider_since_at: null,
  unready_at: null,
  missing_since_at: null,
  symptoms: [] as Symptom[],
};

export const NO_COSTS = {costs: {}, costs_at: null, charged_to: null};

/** What a worker without a stream has to say of its work. */
export const NO_WORK = {
  work: null,
  epoch: null,
  claimed_at: null,
  drains: false,
  samples_done: null,
  samples_total: null,
  tokens_done: null,
  shards_done: null,
  tokens_per_s: null,
};

/** Its lease was taken from it: it hears so at its next heartbeat. */
export function withoutWork(worker: Worker): Worker {
  return {...worker, ...NO_WORK};
}

/** It asks for work, which is something new each time. */
export function askedForWork(worker: Worker, now: number): Worker {
  return {...heardFrom(worker, {...NO_WORK, activity: 'idle'}, now), progress_at: iso(now)};
}

const PROGRESS = ['activity', 'work', 'samples_done', 'tokens_done', 'shards_done'] as const;

/** A heartbeat of the living incarnation: it is the proof of life, and the end of booting. */
export function heardFrom(
  worker: Worker,
  said: Pick<Worker, keyof typeof NO_WORK> & {activity: string},
  now: number,
): Worker {
  const phase = phaseAfter(worker, said.activity, said.work);
  return {
    ...accrue(worker, now),
    ...said,
    phase,
    phase_since_at: phase === worker.phase ? worker.phase_since_at : iso(now),
    ready_at: worker.ready_at ?? readyBySaying(worker, now),
    hello_at: worker.hello_at ?? iso(now),
    suspect: worker.fault === null ? null : worker.suspect,
    progress_at: PROGRESS.some(field => said[field] !== worker[field]) ? iso(now) : worker.progress_at,
    heartbeat_at: iso(now),
  };
}

/** Its agent speaks before any look has seen it READY. Of a request in the queue nobody knows yet when its node was begun. */
function readyBySaying(
  {provisioning, provider_state, provider_since_at, phase_since_at, unready_at}: Worker,
  now: number,
) {
  const isBegun = provisioning === 'node' || provider_state !== null;
  return isBegun ? readySince([phase_since_at, provider_since_at, unready_at], now) : iso(now);
}

function phaseAfter(worker: Worker, activity: string, work: string | null): Phase {
  if (worker.phase === 'draining') return 'draining';
  if (activity === 'setup') return 'booting';
  return work === null ? 'idle' : 'working';
}
