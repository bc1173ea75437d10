/**
 * The lifecycle of a worker: its document and an observation determine its next phase and the requests to Cloud TPU.
 * A decision depends on state only, so repeating it requests nothing twice. records/worker.ts explains the phases.
 */
import {parseJobWork} from '../names.ts';
import {isAlive, isBlocked, NOTHING_SHOWN, type Worker} from '../records/worker.ts';
import {iso, msOf} from '../time.ts';
import {withoutWords} from './hosts.ts';
import type {Limits} from './limits.ts';
import {causeOfDeath, type Death, taken} from './liveness.ts';
import {
  afterLook,
  type ForeignNode,
  type FoundNode,
  newSymptoms,
  type Observation,
  otherIncarnation,
  UNBILLED,
} from './observation.ts';
import {isUp, nodeStanding, symptomText} from './provider-states.ts';
import {isServedFor, type Moment} from './served-time.ts';
import {
  askAgain,
  createRefused,
  enter,
  IDLE,
  toCreating,
  toDeleting,
  unchanged,
  type WorkerDecision,
} from './transitions.ts';

/** Demand of the pool for the slot. `dismissed`: no budget pays for the worker, so it is deleted even in the middle of a shard. */
export type Wanted = 'wanted' | 'unwanted' | 'dismissed';

/** What happens to a silent worker: it ends now, or the silence guard of its zone holds it. See zone/silence-guard.ts. */
export type Silence = 'ends' | 'held';

/** A delete without effect for this many seconds may never have been published, because the function died. */
const UNHEARD_S = 30;

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
  const isRepaired = hasBeenRepaired(worker, seen);
  if (isRepaired) events.push(`${worker.name} is ${seen.provider_state} again and boots`);
  const silent = {heartbeat_at: null, hosts: withoutWords(seen)};
  const booting = isRepaired ? enter(seen, 'booting', bootsSince(worker, now), silent) : seen;
  const decision = decideSeen(booting, observation, wanted, {limits, moment, silence});
  return events.length === 0 ? decision : {...decision, events: [...events, ...decision.events]};
}

/** True after a repair during which the agent stayed silent: the host boots from scratch. */
function hasBeenRepaired(before: Worker, seen: Worker): boolean {
  if (!isAlive(before) || nodeStanding(before) !== 'mending' || nodeStanding(seen) !== 'up') return false;
  const {heartbeat_at, provider_since_at} = before;
  return heartbeat_at === null || provider_since_at === null || heartbeat_at <= provider_since_at;
}

/** Start of the boot after a repair. A worker that was booting keeps only the rest of its time, so that endless repairs end too. */
function bootsSince({phase, phase_since_at, heartbeat_at, provider_since_at}: Worker, now: number): number {
  if (phase !== 'booting' || heartbeat_at !== null || provider_since_at === null) return now;
  return msOf(phase_since_at) + (now - msOf(provider_since_at));
}

type Context = {limits: Limits; moment: Moment; silence: Silence};

function decideSeen(worker: Worker, observation: Observation, wanted: Wanted, context: Context) {
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

/** Blocks the slot while a node that is not ours has its name. The pool uses another slot in the meantime. */
function decideForeign(worker: Worker, {isQueued}: ForeignNode, wanted: Wanted, limits: Limits, now: number) {
  if (isQueued) {
    if (worker.phase === 'deleting') return askAgain(worker, 'delete', limits, now);
    const cause = 'its request waits behind a node of its name that is not ours';
    // Forgets the observed node, so that a delete that is delivered twice checks the owner of the node again.
    const unseen = {...worker, ...(worker.phase === 'gone' ? UNBILLED : {}), ...NOTHING_SHOWN};
    return lose(unseen, taken(cause), now);
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
    const event = `${worker.name} exists but is not wanted: deleting it`;
    return toDeleting(outgrow(worker, observation), event, now);
  }
  // A message may have deleted the worker after the plan was made, or before the database was lost.
  if (wanted !== 'wanted' || worker.held || isBlocked(worker, now)) return unchanged(worker);
  return toCreating(worker, now);
}

function decideDeleting(worker: Worker, observation: Observation, limits: Limits, now: number) {
  if (observation.kind === 'absent') {
    const gone = enter(worker, 'gone', now, {asked_at: null, recreate: false, ...NOTHING_SHOWN});
    return {worker: gone, actions: [], events: [`${worker.name} is gone`]};
  }
  if (observation.kind === 'unknown' || observation.kind === 'missing') return unchanged(worker);
  const ask_again_s = isGoing(observation) ? limits.ask_again_s : Math.min(UNHEARD_S, limits.ask_again_s);
  return askAgain(worker, 'delete', {...limits, ask_again_s}, now);
}

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
  const {now, servedTime} = moment;
  const other = otherIncarnation(worker, observation);
  if (other !== undefined && observation.kind === 'found') {
    const death = taken(`the node of that name is incarnation ${other}, not ${worker.incarnation}`);
    return lose(outgrow(worker, observation), death, now);
  }
  const death = causeOfDeath(worker, observation, limits, moment);
  if (death && !(death.kind === 'silent' && silence === 'held')) {
    // A node that never became READY blocks the slot like a refusal: the zone has no node to give.
    const blocked_until_at = worker.phase === 'creating' ? iso(now + limits.retry_s * 1000) : null;
    const last_error = death.kind === 'boot' ? death.cause : worker.last_error;
    return lose({...worker, blocked_until_at, last_error}, death, now);
  }
  if (worker.recreate) {
    const [action, becomes] = worker.held ? ['delete', 'deleted'] : ['recreate', 'made again'];
    const death: Death = {kind: 'asked', cause: `${action} was asked for`};
    return toDeleting(worker, `${worker.name} is ${becomes}, as asked`, now, death);
  }
  if (wanted === 'dismissed')
    return toDeleting(worker, `${worker.name} has no budget left: deleting it`, now);
  if (wanted === 'unwanted' && worker.phase === 'working' && worker.work !== null) {
    const draining = enter(worker, 'draining', now);
    return {worker: draining, actions: [], events: [`${worker.name} is not needed any more: draining it`]};
  }
  if (wanted === 'unwanted' && worker.phase !== 'draining')
    return toDeleting(worker, `${worker.name} is not needed any more: deleting it`, now);
  if (worker.phase === 'draining' && worker.work === null)
    return toDeleting(worker, `${worker.name} is drained: deleting it`, now);
  // A tick ends the job at its `due_at`.
  const hasJob = parseJobWork(worker.work) !== undefined;
  if (
    worker.phase === 'draining' &&
    !hasJob &&
    isServedFor(servedTime, worker.phase_since_at, limits.drain_s)
  )
    return toDeleting(worker, `${worker.name} is not drained after ${limits.drain_s} s: deleting it`, now);
  if (worker.phase === 'creating') {
    if (observation.kind === 'found' && isUp(observation.state))
      return {
        worker: enter(worker, 'booting', now),
        actions: [],
        events: [`${worker.name} is ${observation.state} and boots`],
      };
    if (observation.kind === 'absent') return askAgain(worker, 'create', limits, now);
  }
  return unchanged(worker);
}

function lose(worker: Worker, death: Death, now: number): WorkerDecision {
  return toDeleting(worker, `${worker.name} is lost: ${death.cause}; deleting it`, now, death);
}

/** Raises the incarnation above every number in use, because a node may have outlived its database. */
function outgrow(worker: Worker, {incarnations}: FoundNode): Worker {
  return {...worker, incarnation: Math.max(worker.incarnation, ...incarnations)};
}
