/** The decisions about a slot, from nothing but what is known of it and what is seen: worker.ts says what a slot is. */

import {isOlderThan, iso, msOf} from '../time.ts';
import {causeOfDeath, type Death} from './liveness.ts';
import {
  nodeStanding,
  type Queued,
  queueStanding,
  type Shown,
  type Symptom,
  symptomText,
} from './provider-states.ts';
import {isServedFor, type Moment} from './served-time.ts';
import {
  isAlive,
  isBlocked,
  NO_COSTS,
  NO_WORK,
  NOTHING_SHOWN,
  type Phase,
  readySince,
  type Worker,
} from './worker.ts';

/** Seconds; the defaults and the reasons for them are in `config.ts`. Limits on what agents say count served time: see served.ts. */
export type Limits = {
  create_s: number;
  boot_s: number;
  setup_s: number;
  silent_s: number;
  /** How long an extraction may stand still: while it computes or uploads, while it compiles, while it loads a model. */
  stall_s: number;
  compile_s: number;
  load_s: number;
  drain_s: number;
  /** How long an asked-for create or delete may stay without effect before it is asked for again. */
  ask_again_s: number;
  repair_s: number;
  /** How long a slot waits after its zone gave it no node. */
  retry_s: number;
};

/**
 * What Cloud TPU shows for the slot's name. `unknown`: its zone gave no answer; nothing is concluded.
 * `missing`: a node that was shown before is not in the complete list of `listed_at`, which may be wrong.
 * `absent`: `get` found no such node, or none was ever shown. `foreign`: a node without our label, which is not ours to delete;
 * a request of ours may be in the queue behind it.
 */
export type Observation = {kind: 'unknown'} | Missing | {kind: 'absent'} | Foreign | Found;

export type Missing = {kind: 'missing'; listed_at: string};

export type Foreign = {kind: 'foreign'; isQueued: boolean};

/** A node, a queued resource, or both. `state` is the node's. */
export type Found = {
  kind: 'found';
  state: string | null;
  health: string;
  symptoms: Symptom[];
  queued: Queued | null;
  /** The lives that their labels name: one, if all is well. */
  incarnations: number[];
  /** When the node was made. */
  created_at: string;
};

export type WorkerAction = {kind: 'create' | 'delete'; worker: string; incarnation: number};

/** `death` is why this life of the slot ended before its work did. */
export type WorkerDecision = {worker: Worker; actions: WorkerAction[]; events: string[]; death?: Death};

/** Whether the pool needs the slot now. `dismissed`: it may not cost another minute, so it is not let finish what it has. */
export type Wanted = 'wanted' | 'unwanted' | 'dismissed';

/** Whether a silent worker ends now, or is held by the brake of its zone: see brake.ts. */
export type Silence = 'ends' | 'held';

/**
 * What the slot becomes and what is asked of Cloud TPU, from nothing but state: run twice, it asks once.
 */
export function decideWorker(
  worker: Worker,
  observation: Observation,
  wanted: Wanted,
  limits: Limits,
  moment: Moment,
  silence: Silence = 'ends',
): WorkerDecision {
  const {now} = moment;
  if (observation.kind === 'foreign') return decideForeign(worker, observation, wanted, limits, now);
  const seen = afterLook(worker, observation, now);
  const events = newSymptoms(worker, seen).map(symptom => `${worker.name} shows ${symptomText(symptom)}`);
  const isMended = hasBeenMended(worker, seen);
  if (isMended) events.push(`${worker.name} is READY again and boots`);
  const booting = isMended ? enter(seen, 'booting', bootsSince(worker, now), {heartbeat_at: null}) : seen;
  const decision = decideSeen(booting, observation, wanted, {limits, moment, silence});
  return events.length === 0 ? decision : {...decision, events: [...events, ...decision.events]};
}

/** Google has mended it, and it has not spoken since that began: its host starts from nothing, and silence is no death yet. */
function hasBeenMended(before: Worker, seen: Worker): boolean {
  if (!isAlive(before) || nodeStanding(before) !== 'mending' || nodeStanding(seen) !== 'up') return false;
  const {heartbeat_at, provider_since_at} = before;
  return heartbeat_at === null || provider_since_at === null || heartbeat_at <= provider_since_at;
}

/** Its host starts from nothing. One that had booted before and never spoken has the rest of its time, or it could do so for ever. */
function bootsSince({phase, phase_since_at, heartbeat_at, provider_since_at}: Worker, now: number): number {
  if (phase !== 'booting' || heartbeat_at !== null || provider_since_at === null) return now;
  return msOf(phase_since_at) + (now - msOf(provider_since_at));
}

type Context = {limits: Limits; moment: Moment; silence: Silence};

function decideSeen(
  worker: Worker,
  observation: Observation,
  wanted: Wanted,
  context: Context,
): WorkerDecision {
  const {limits, moment} = context;
  const {now} = moment;
  switch (worker.phase) {
    case 'gone':
      return decideGone(worker, observation, wanted, now);
    case 'deleting':
      return decideDeleting(worker, observation, limits, now);
    case 'creating':
    case 'booting':
    case 'idle':
    case 'working':
    case 'draining':
      return decideLiving(worker, observation, wanted, context);
    default:
      return worker.phase satisfies never;
  }
}

/** Somebody else has the name: the slot waits, and the pool takes another one meanwhile. */
function decideForeign(
  worker: Worker,
  {isQueued}: Foreign,
  wanted: Wanted,
  limits: Limits,
  now: number,
): WorkerDecision {
  if (isQueued) {
    if (worker.phase === 'deleting') return askAgain(worker, 'delete', limits, now);
    const cause = 'its request waits behind a node of its name that is not ours';
    // As one that was never seen: a delete that comes again must look whose the node is.
    const unseen = {...worker, ...(worker.phase === 'gone' ? UNBILLED : {}), ...NOTHING_SHOWN};
    return toDeleting(unseen, `${worker.name} is lost: ${cause}; deleting it`, now, taken(cause));
  }
  if (worker.phase === 'gone' && (wanted !== 'wanted' || isBlocked(worker, now))) return unchanged(worker);
  const reason = `there is a node ${worker.name} that is not ours: delete it, or leave the slot to it`;
  const gone = {...createRefused(worker, reason, limits.retry_s, now), ...IDLE};
  return {
    worker: gone,
    actions: [],
    events: [`${worker.name} cannot be created: ${reason}`],
    death: taken(reason),
  };
}

function decideGone(worker: Worker, observation: Observation, wanted: Wanted, now: number): WorkerDecision {
  if (observation.kind === 'found') {
    const event = `${worker.name} exists, though nobody wants it: deleting it`;
    return toDeleting(outgrow(worker, observation), event, now);
  }
  // Held by a message since it was chosen, or before the Store was lost.
  if (wanted !== 'wanted' || worker.held || isBlocked(worker, now)) return unchanged(worker);
  return toCreating(worker, now);
}

function decideDeleting(
  worker: Worker,
  observation: Observation,
  limits: Limits,
  now: number,
): WorkerDecision {
  if (observation.kind === 'absent') {
    const gone = enter(worker, 'gone', now, {
      asked_at: null,
      recreate: false,
      ...NOTHING_SHOWN,
    });
    return {worker: gone, actions: [], events: [`${worker.name} is gone`]};
  }
  if (observation.kind === 'unknown' || observation.kind === 'missing') return unchanged(worker);
  const ask_again_s = isGoing(observation) ? limits.ask_again_s : Math.min(UNHEARD_S, limits.ask_again_s);
  return askAgain(worker, 'delete', {...limits, ask_again_s}, now);
}

/** A node that is not going by the next tick may never have been told to: the function died before it published. */
const UNHEARD_S = 30;

function isGoing(observation: Observation): boolean {
  if (observation.kind !== 'found') return false;
  return observation.state === 'DELETING' || observation.queued?.state === 'DELETING';
}

function decideLiving(
  worker: Worker,
  observation: Observation,
  wanted: Wanted,
  {limits, moment, silence}: Context,
): WorkerDecision {
  const {now, served} = moment;
  const other = otherLife(worker, observation);
  if (other !== undefined && observation.kind === 'found') {
    const death = taken(`the node of that name is incarnation ${other}, not ${worker.incarnation}`);
    return toDeleting(
      outgrow(worker, observation),
      `${worker.name} is lost: ${death.cause}; deleting it`,
      now,
      death,
    );
  }
  const death = causeOfDeath(worker, observation, limits, moment);
  if (death && !(death.kind === 'silent' && silence === 'held')) {
    // A node that never came up says what a refusal says: this zone has none to give now.
    const blocked_until_at = worker.phase === 'creating' ? iso(now + limits.retry_s * 1000) : null;
    const event = `${worker.name} is lost: ${death.cause}; deleting it`;
    return toDeleting({...worker, blocked_until_at}, event, now, death);
  }
  if (worker.recreate) {
    const [asked, becomes] = worker.held ? ['delete', 'deleted'] : ['recreate', 'made again'];
    const death: Death = {kind: 'asked', cause: `${asked} was asked for`};
    return toDeleting(worker, `${worker.name} is ${becomes}, as asked`, now, death);
  }
  if (wanted === 'dismissed') return toDeleting(worker, `${worker.name} may cost no more: deleting it`, now);
  if (wanted === 'unwanted' && worker.phase === 'working' && worker.work !== null) {
    const draining = enter(worker, 'draining', now);
    return {worker: draining, actions: [], events: [`${worker.name} is not needed any more: draining it`]};
  }
  if (wanted === 'unwanted' && worker.phase !== 'draining')
    return toDeleting(worker, `${worker.name} is not needed any more: deleting it`, now);
  if (worker.phase === 'draining' && worker.work === null)
    return toDeleting(worker, `${worker.name} is drained: deleting it`, now);
  if (worker.phase === 'draining' && isServedFor(served, worker.phase_since_at, limits.drain_s))
    return toDeleting(worker, `${worker.name} is not drained after ${limits.drain_s} s: deleting it`, now);
  if (worker.phase === 'creating') {
    if (observation.kind === 'found' && observation.state === 'READY')
      return {
        worker: enter(worker, 'booting', now),
        actions: [],
        events: [`${worker.name} is READY and boots`],
      };
    if (observation.kind === 'absent') return askAgain(worker, 'create', limits, now);
  }
  return unchanged(worker);
}

function otherLife(worker: Worker, observation: Observation): number | undefined {
  if (observation.kind !== 'found') return undefined;
  return observation.incarnations.find(incarnation => incarnation !== worker.incarnation);
}

/** A node may have outlived its database: the next life needs a number that was never used. */
function outgrow(worker: Worker, {incarnations}: Found): Worker {
  return {...worker, incarnation: Math.max(worker.incarnation, ...incarnations)};
}

function withProvider(worker: Worker, observation: Found, now: number): Worker {
  const shown = {
    provider_state: observation.state,
    health: observation.state === null ? null : observation.health,
    queue_state: observation.queued?.state ?? null,
  };
  const symptoms = symptomsSince(worker.ready_at, observation.symptoms);
  const isNews =
    shown.provider_state !== worker.provider_state ||
    shown.health !== worker.health ||
    shown.queue_state !== worker.queue_state ||
    symptoms.length !== worker.symptoms.length ||
    worker.missing_since_at !== null ||
    newSymptoms(worker, {symptoms}).length > 0;
  if (!isNews) return worker;
  const isSame = worker.provider_since_at !== null && standing(shown) === standing(worker);
  const provider_since_at = isSame ? worker.provider_since_at : iso(now);
  return {...worker, ...shown, symptoms, provider_since_at, missing_since_at: null};
}

/** How often it is written down that a node is not READY yet. */
const UNREADY_S = 120;

/** What a life that is over has cost is on the bills already: only what its slot costs from now on comes to that. */
const UNBILLED = {costs: {}, costs_at: null, ready_at: null};

/** The worker with what a look has shown of it, before anything is decided. A node is paid for once it is READY, also one that must go. */
export function afterLook(before: Worker, observation: Observation, now: number): Worker {
  if (observation.kind === 'missing' && before.missing_since_at === null)
    return {...before, missing_since_at: observation.listed_at};
  if (observation.kind !== 'found') return before;
  const seen = withProvider(before, observation, now);
  const worker = before.phase === 'gone' ? {...seen, ...UNBILLED} : seen;
  if (worker.ready_at !== null) return worker;
  if (observation.state !== 'READY') {
    const isNews = worker.unready_at === null || isOlderThan(worker.unready_at, UNREADY_S, now);
    return isNews && nodeStanding(worker) === 'coming' ? {...worker, unready_at: iso(now)} : worker;
  }
  // What is being deleted was there before it became so, unless that was another life.
  const isOwn = before.phase === 'deleting' && otherLife(before, observation) === undefined;
  const {provider_since_at, unready_at, phase_since_at} = before;
  const bounds = [observation.created_at, provider_since_at, unready_at, isOwn ? null : phase_since_at];
  return {...worker, ready_at: readySince(bounds, now)};
}

function standing(shown: Shown): string {
  return `${nodeStanding(shown)}, ${queueStanding(shown)}`;
}

const MOST_SYMPTOMS = 5;

/** Those from before the node was READY come with making it. */
function symptomsSince(ready_at: string | null, symptoms: readonly Symptom[]): Symptom[] {
  if (ready_at === null) return [];
  const since = symptoms.filter(({created_at}) => msOf(created_at) >= msOf(ready_at));
  return since.sort((a, b) => msOf(a.created_at) - msOf(b.created_at)).slice(-MOST_SYMPTOMS);
}

function newSymptoms(before: Worker, {symptoms}: Pick<Worker, 'symptoms'>): Symptom[] {
  const isKnown = ({symptom, created_at}: Symptom) =>
    before.symptoms.some(known => known.symptom === symptom && known.created_at === created_at);
  return symptoms.filter(symptom => !isKnown(symptom));
}

function toCreating(worker: Worker, now: number): WorkerDecision {
  const creating = enter(worker, 'creating', now, {
    incarnation: worker.incarnation + 1,
    born_at: iso(now),
    hello_at: null,
    bundle: null,
    is_probe: false,
    suspect: null,
    asked_at: iso(now),
    ready_at: null,
    ...NO_COSTS,
    heartbeat_at: null,
    progress_at: null,
    ...NOTHING_SHOWN,
    fault: null,
    activity: null,
    blocked_until_at: null,
    recreate: false,
    last_error: null,
  });
  return {
    worker: creating,
    actions: [ask('create', creating)],
    events: [`${worker.name} is wanted: creating it, incarnation ${creating.incarnation}`],
  };
}

const IDLE = {...NO_WORK, activity: null};

function taken(cause: string): Death {
  return {kind: 'taken', cause};
}

function toDeleting(worker: Worker, event: string, now: number, death?: Death): WorkerDecision {
  const deleting = enter(worker, 'deleting', now, {
    asked_at: iso(now),
    last_death: death?.cause ?? worker.last_death,
    ...IDLE,
  });
  return {worker: deleting, actions: [ask('delete', deleting)], events: [event], ...(death ? {death} : {})};
}

function enter(worker: Worker, phase: Phase, now: number, changes: Partial<Worker> = {}): Worker {
  return {...worker, ...changes, phase, phase_since_at: iso(now)};
}

function ask(kind: 'create' | 'delete', worker: Worker): WorkerAction {
  return {kind, worker: worker.name, incarnation: worker.incarnation};
}

/** What was asked for and has had no effect for long is asked for again. */
function askAgain(worker: Worker, kind: 'create' | 'delete', limits: Limits, now: number): WorkerDecision {
  if (!isOlderThan(worker.asked_at ?? worker.phase_since_at, limits.ask_again_s, now))
    return unchanged(worker);
  const shows = kind === 'create' ? 'does not show' : 'is still there';
  const event = `${worker.name} ${shows}: asking again to ${kind} it`;
  return {worker: {...worker, asked_at: iso(now)}, actions: [ask(kind, worker)], events: [event]};
}

function unchanged(worker: Worker): WorkerDecision {
  return {worker, actions: [], events: []};
}

/** Cloud TPU refused to create the slot: it waits, and the pool takes another one meanwhile. */
export function createRefused(worker: Worker, reason: string, wait_s: number, now: number): Worker {
  return enter(worker, 'gone', now, {
    blocked_until_at: iso(now + wait_s * 1000),
    last_error: reason,
    last_death: reason,
    asked_at: null,
  });
}
