import {accrue, type Costs} from './cost.ts';
import {causeOfDeath, type Death} from './death.ts';
import {nodeStanding, type Queued, queueStanding, type Shown, type Symptom, symptomText} from './provider.ts';
import {isOlderThan, iso, msOf} from './time.ts';

/**
 * The life of a slot. `creating`: the node was asked for, at once or in the queue. `booting`: the node is READY, its agent has
 * not spoken. `idle` and `working`: the agent speaks. `draining`: it finishes its shard and gets nothing more. `deleting`: the
 * node must go. `gone`: there is no node; a wanted slot is created again from here, with the next incarnation.
 */
export type Phase = 'creating' | 'booting' | 'idle' | 'working' | 'draining' | 'deleting' | 'gone';

export type Worker = Shown & {
  name: string;
  pool: string;
  zone: string;
  slot: number;
  phase: Phase;
  phase_since_at: string;
  /** When the node of this life was first seen READY: from then on it is paid for. */
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
  /** How the node of this life was asked for, and until when the queue may give it. */
  provisioning: 'node' | 'queued-resource' | null;
  valid_until_at: string | null;
  /** Since when Cloud TPU's words for it mean what they mean; see provider.ts. */
  provider_since_at: string | null;
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
  /** When it was given that lease, or last said that it has it. */
  claimed_at: string | null;
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
  last_death: string | null;
  last_error: string | null;
  created_at: string;
  updated_at: string;
};

/** Seconds; the defaults and the reasons for them are in `config.ts`. */
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
 * What Cloud TPU shows for the slot's name. `unknown`: its zone gave no answer, or nobody looked; nothing is concluded.
 * `foreign`: a node without our label, which somebody else made and which is not ours to delete.
 */
export type Observation = {kind: 'unknown'} | {kind: 'absent'} | {kind: 'foreign'} | Found;

/** A node, a queued resource, or both. `state` is the node's. */
export type Found = {
  kind: 'found';
  state: string | null;
  health: string;
  symptoms: Symptom[];
  queued: Queued | null;
  /** The lives that their labels name: one, if all is well. */
  incarnations: number[];
};

export type WorkerAction = {kind: 'create' | 'delete'; worker: string; incarnation: number};

/** `death` is why this life of the slot ended before its work did. */
export type WorkerDecision = {worker: Worker; actions: WorkerAction[]; events: string[]; death?: Death};

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
    last_death: null,
    last_error: null,
    created_at: iso(now),
    updated_at: iso(now),
  };
}

/**
 * A node that no document knows, as a lost Store leaves it: it goes on as if it had just been asked for. What it has cost since
 * it was made is counted.
 */
export function adoptNode(
  worker: Worker,
  node: Pick<Worker, 'incarnation' | 'ready_at' | 'provisioning' | 'valid_until_at'>,
  seen_at: string,
): Worker {
  return {
    ...worker,
    ...node,
    phase: 'creating',
    phase_since_at: seen_at,
    asked_at: seen_at,
  };
}

/**
 * Adopted so lately that its agent may not have said yet what it works on: until then nobody knows that it is not wanted. Only a
 * node that is older than its document is READY before it.
 */
export function isUnheard(worker: Worker, lease_s: number, now: number): boolean {
  const {phase, ready_at, created_at} = worker;
  const isAdopted = ready_at !== null && msOf(ready_at) < msOf(created_at);
  const isEarly = phase === 'creating' || phase === 'booting' || phase === 'idle';
  return isAdopted && isEarly && !isOlderThan(created_at, lease_s, now);
}

/** The phases in which an agent may hold a lease and be heard. */
export function isAlive(worker: Worker): boolean {
  return worker.phase === 'booting' || isSpeaking(worker);
}

function isSpeaking(worker: Worker): boolean {
  return worker.phase === 'idle' || worker.phase === 'working' || worker.phase === 'draining';
}

export function isBlocked(worker: Worker, now: number): boolean {
  return worker.blocked_until_at !== null && !isOlderThan(worker.blocked_until_at, 0, now);
}

/** Whether the pool needs the slot now. `dismissed`: it may not cost another minute, so it is not let finish what it has. */
export type Wanted = 'wanted' | 'unwanted' | 'dismissed';

/**
 * What the slot becomes and what is asked of Cloud TPU, from nothing but state: run twice, it asks once.
 */
export function decideWorker(
  worker: Worker,
  observation: Observation,
  wanted: Wanted,
  limits: Limits,
  now: number,
): WorkerDecision {
  if (observation.kind === 'foreign') return decideForeign(worker, wanted, limits, now);
  const seen = withProvider(worker, observation, now);
  const events = newSymptoms(worker, seen).map(symptom => `${worker.name} shows ${symptomText(symptom)}`);
  const isMended = hasBeenMended(worker, seen);
  if (isMended) events.push(`${worker.name} is READY again and boots`);
  const booting = isMended ? enter(seen, 'booting', now, {heartbeat_at: null}) : seen;
  const decision = decideSeen(booting, observation, wanted, limits, now);
  return events.length === 0 ? decision : {...decision, events: [...events, ...decision.events]};
}

/** Google has mended it, and it has not spoken since that began: its host starts from nothing, and silence is no death yet. */
function hasBeenMended(before: Worker, seen: Worker): boolean {
  if (!isAlive(before) || nodeStanding(before) !== 'mending' || nodeStanding(seen) !== 'up') return false;
  const {heartbeat_at, provider_since_at} = before;
  return heartbeat_at === null || provider_since_at === null || heartbeat_at <= provider_since_at;
}

function decideSeen(
  worker: Worker,
  observation: Observation,
  wanted: Wanted,
  limits: Limits,
  now: number,
): WorkerDecision {
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
      return decideLiving(worker, observation, wanted, limits, now);
    default:
      return worker.phase satisfies never;
  }
}

/** Somebody else has the name: the slot waits, and the pool takes another one meanwhile. */
function decideForeign(worker: Worker, wanted: Wanted, limits: Limits, now: number): WorkerDecision {
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
  if (wanted !== 'wanted' || isBlocked(worker, now)) return unchanged(worker);
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
  if (observation.kind === 'unknown' || !isTimeToAskAgain(worker, limits, now)) return unchanged(worker);
  return {worker: {...worker, asked_at: iso(now)}, actions: [ask('delete', worker)], events: []};
}

function decideLiving(
  worker: Worker,
  observation: Observation,
  wanted: Wanted,
  limits: Limits,
  now: number,
): WorkerDecision {
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
  const death = causeOfDeath(worker, observation, limits, now);
  if (death) {
    // A node that never came up says what a refusal says: this zone has none to give now.
    const blocked_until_at = worker.phase === 'creating' ? iso(now + limits.retry_s * 1000) : null;
    const event = `${worker.name} is lost: ${death.cause}; deleting it`;
    return toDeleting({...worker, blocked_until_at}, event, now, death);
  }
  if (worker.recreate)
    return toDeleting(worker, `${worker.name} is made again, as asked`, now, taken('recreate was asked for'));
  if (wanted === 'dismissed') return toDeleting(worker, `${worker.name} may cost no more: deleting it`, now);
  if (wanted === 'unwanted' && worker.phase === 'working') {
    const draining = enter(worker, 'draining', now);
    return {worker: draining, actions: [], events: [`${worker.name} is not needed any more: draining it`]};
  }
  if (wanted === 'unwanted' && worker.phase !== 'draining')
    return toDeleting(worker, `${worker.name} is not needed any more: deleting it`, now);
  if (
    worker.phase === 'draining' &&
    (worker.work === null || isOlderThan(worker.phase_since_at, limits.drain_s, now))
  )
    return toDeleting(worker, `${worker.name} is drained: deleting it`, now);
  if (worker.phase === 'creating') {
    if (observation.kind === 'found' && observation.state === 'READY')
      return {
        worker: enter(worker, 'booting', now, {ready_at: worker.ready_at ?? iso(now)}),
        actions: [],
        events: [`${worker.name} is READY and boots`],
      };
    if (observation.kind === 'absent' && isTimeToAskAgain(worker, limits, now))
      return {worker: {...worker, asked_at: iso(now)}, actions: [ask('create', worker)], events: []};
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

function isTimeToAskAgain(worker: Worker, limits: Limits, now: number): boolean {
  return isOlderThan(worker.asked_at ?? worker.phase_since_at, limits.ask_again_s, now);
}

function withProvider(worker: Worker, observation: Observation, now: number): Worker {
  if (observation.kind !== 'found') return worker;
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
    newSymptoms(worker, {symptoms}).length > 0;
  if (!isNews) return worker;
  const isSame = worker.provider_since_at !== null && standing(shown) === standing(worker);
  return {...worker, ...shown, symptoms, provider_since_at: isSame ? worker.provider_since_at : iso(now)};
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

const NOTHING_SHOWN = {
  provider_state: null,
  health: null,
  queue_state: null,
  provider_since_at: null,
  symptoms: [] as Symptom[],
};

const NO_COSTS = {costs: {}, costs_at: null, charged_to: null};

/** What a worker without a stream has to say of its work. */
export const NO_WORK = {
  work: null,
  epoch: null,
  claimed_at: null,
  samples_done: null,
  samples_total: null,
  tokens_done: null,
  shards_done: null,
  tokens_per_s: null,
};

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

function unchanged(worker: Worker): WorkerDecision {
  return {worker, actions: [], events: []};
}

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
    ready_at: worker.ready_at ?? iso(now),
    progress_at: PROGRESS.some(field => said[field] !== worker[field]) ? iso(now) : worker.progress_at,
    heartbeat_at: iso(now),
  };
}

function phaseAfter(worker: Worker, activity: string, work: string | null): Phase {
  if (worker.phase === 'draining') return 'draining';
  if (activity === 'setup') return 'booting';
  return work === null ? 'idle' : 'working';
}

/** Cloud TPU refused to create the slot: it waits, and the pool takes another one meanwhile. */
export function createRefused(worker: Worker, reason: string, wait_s: number, now: number): Worker {
  return enter(worker, 'gone', now, {
    blocked_until_at: iso(now + wait_s * 1000),
    last_error: reason,
    asked_at: null,
  });
}
