import {accrue, type Costs} from './cost.ts';
import {causeOfDeath, type Death} from './death.ts';
import {isOlderThan, iso, msOf} from './time.ts';

/**
 * The life of a slot. `creating`: the node was asked for. `booting`: the node is READY, its agent has not spoken.
 * `idle` and `working`: the agent speaks. `draining`: it finishes its shard and gets nothing more. `deleting`: the node must
 * go. `gone`: there is no node; a wanted slot is created again from here, with the next incarnation.
 */
export type Phase = 'creating' | 'booting' | 'idle' | 'working' | 'draining' | 'deleting' | 'gone';

export type Worker = {
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
  provider_state: string | null;
  health: string | null;
  heartbeat_at: string | null;
  /** What the agent says it does: setup, idle, loading, compiling, running, uploading. */
  activity: string | null;
  /** `my-run/007`, the lease it works under. */
  work: string | null;
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
export type Observation =
  | {kind: 'unknown'}
  | {kind: 'absent'}
  | {kind: 'foreign'}
  | {kind: 'node'; state: string; health: string; incarnation: number | null};

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
    provider_state: null,
    health: null,
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
  node: Pick<Worker, 'incarnation' | 'ready_at'>,
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
  const seen = withProvider(worker, observation);
  switch (worker.phase) {
    case 'gone':
      return decideGone(seen, observation, wanted, now);
    case 'deleting':
      return decideDeleting(seen, observation, limits, now);
    case 'creating':
    case 'booting':
    case 'idle':
    case 'working':
    case 'draining':
      return decideLiving(seen, observation, wanted, limits, now);
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
  if (observation.kind === 'node') {
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
      provider_state: null,
      health: null,
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
  if (observation.kind === 'node' && isOtherLife(worker, observation.incarnation)) {
    const death = taken(
      `the node of that name is incarnation ${observation.incarnation}, not ${worker.incarnation}`,
    );
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
    if (observation.kind === 'node' && observation.state === 'READY')
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

function isOtherLife(worker: Worker, incarnation: number | null): boolean {
  return incarnation !== null && incarnation !== worker.incarnation;
}

/** A node may have outlived its database: the next life needs a number that was never used. */
function outgrow(worker: Worker, {incarnation}: {incarnation: number | null}): Worker {
  return {...worker, incarnation: Math.max(worker.incarnation, incarnation ?? 0)};
}

function isTimeToAskAgain(worker: Worker, limits: Limits, now: number): boolean {
  return isOlderThan(worker.asked_at ?? worker.phase_since_at, limits.ask_again_s, now);
}

function withProvider(worker: Worker, observation: Observation): Worker {
  if (observation.kind !== 'node') return worker;
  if (worker.provider_state === observation.state && worker.health === observation.health) return worker;
  return {...worker, provider_state: observation.state, health: observation.health};
}

function toCreating(worker: Worker, now: number): WorkerDecision {
  const creating = enter(worker, 'creating', now, {
    incarnation: worker.incarnation + 1,
    asked_at: iso(now),
    ready_at: null,
    ...NO_COSTS,
    heartbeat_at: null,
    progress_at: null,
    provider_state: null,
    health: null,
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

const NO_COSTS = {costs: {}, costs_at: null, charged_to: null};

/** What a worker without a stream has to say of its work. */
export const NO_WORK = {
  work: null,
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
