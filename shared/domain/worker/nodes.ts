/** Nodes and queued resources as Cloud TPU lists them, and what a list shows about one slot. */
import {DEFAULT_DEPLOYMENT, isLabelled} from '../deployment.ts';
import {parseWorkerName} from '../names.ts';
import {hasEnded, type Worker, type Workers} from '../records/worker.ts';
import {iso, msOf} from '../time.ts';
import type {FoundNode, Observation} from './observation.ts';
import {type Queued, queueStanding} from './provider-states.ts';
import {isServedFor, type Served} from './served-time.ts';

/** A node, its queued resource, or both. `labels`: of the node. The labels in `queued`: of the node that it requests. */
export type Tpu = Pick<FoundNode, 'state' | 'health' | 'symptoms' | 'created_at'> & {
  name: string;
  zone: string;
  labels: Record<string, string>;
  queued: (Queued & {labels: Record<string, string>}) | null;
};

/** The label that names the incarnation of a node. */
export const INCARNATION_LABEL = 'gleaner-incarnation';

export type Nodes = {
  at_ms: number;
  /** Nodes with the labels of this deployment are ours. */
  deployment: string;
  tpus: ReadonlyMap<string, Tpu>;
  /** Nodes of ours whose name or zone fits no slot, and the second of two nodes with one name. */
  strays: readonly Tpu[];
  unreachable: readonly string[];
  /** Names of nodes that neither the list nor `get` shows. */
  absent: ReadonlySet<string>;
};

/** No list at all: it is older than every fact about a worker, so it proves nothing. */
export const NOT_LISTED: Nodes = {
  at_ms: -1,
  deployment: DEFAULT_DEPLOYMENT,
  tpus: new Map(),
  strays: [],
  unreachable: [],
  absent: new Set(),
};

/** Sorts a list by slot. Two providers may have nodes of one name: the second is a stray, and deleting it deletes both. */
export function sortNodes(
  listed: readonly Tpu[],
  {deployment, unreachable, at_ms}: Pick<Nodes, 'deployment' | 'unreachable' | 'at_ms'>,
): Nodes {
  const tpus = new Map<string, Tpu>();
  const strays: Tpu[] = [];
  for (const tpu of listed)
    if (parseWorkerName(tpu.name)?.zone === tpu.zone && !tpus.has(tpu.name)) tpus.set(tpu.name, tpu);
    else if (isManaged(tpu, deployment)) strays.push(tpu);
  return {at_ms, deployment, tpus, strays, unreachable, absent: new Set()};
}

/** Shortest time between two lists that both omit a node. */
const MISSING_S = 60;

/**
 * Workers whose nodes a tick reads with `get`, because the list omits them. Such a worker is being deleted, or two lists omit its node and it
 * has sent no heartbeat for the time of a lease.
 */
export function missingIn(nodes: Nodes, workers: Workers, served: Served, lease_s: number): Worker[] {
  return [...workers.values()].filter(worker => {
    if (observe(nodes, worker).kind !== 'missing') return false;
    if (worker.phase === 'deleting') return true;
    const {heartbeat_at, phase_since_at, missing_since_at} = worker;
    return (
      isServedFor(served, heartbeat_at ?? phase_since_at, lease_s) &&
      missing_since_at !== null &&
      nodes.at_ms - msOf(missing_since_at) >= MISSING_S * 1000
    );
  });
}

export function managedIn({tpus, deployment}: Nodes): string[] {
  return [...tpus.values()].filter(tpu => !isForeign(tpu, deployment)).map(tpu => tpu.name);
}

/** True if those that exist of the node and its request in the queue are ours. */
export function isManaged({labels, queued}: Tpu, deployment: string): boolean {
  const isOurs = (given: Tpu['labels']) => isLabelled(given, deployment);
  return [labels, queued?.labels ?? labels].every(isOurs);
}

/** True if the request in the queue is ours; the node of that name may have another owner. */
function isQueuedByUs({queued}: Tpu, deployment: string): boolean {
  return queued !== null && isLabelled(queued.labels, deployment);
}

/** True if neither the node nor its request in the queue is ours: its name was taken before we asked for it. */
export function isForeign(tpu: Tpu, deployment: string): boolean {
  return !isManaged(tpu, deployment) && !isQueuedByUs(tpu, deployment);
}

export const isGoing = ({state, queued}: Tpu) => (state ?? queued?.state) === 'DELETING';

/** Longest time of a tick, and so the greatest age of its list. A tick that takes longer counts as over, because its function timed out. */
export const LONGEST_TICK_S = 600;

/**
 * The observation of one slot. A list that is older than the worker's phase, or than its last change of state, proves nothing: the node may
 * have come or gone since. If the list would be older than any list can be, the clock was set back since the change, and the list counts.
 */
export function observe(nodes: Nodes, worker: Worker): Observation {
  const {phase_since_at, provider_since_at} = worker;
  const changed_ms = Math.max(msOf(phase_since_at), msOf(provider_since_at ?? phase_since_at));
  const isSetBack = nodes.at_ms >= 0 && changed_ms - nodes.at_ms > LONGEST_TICK_S * 1000;
  if (nodes.at_ms < changed_ms && !isSetBack) return {kind: 'unknown'};
  const tpu = nodes.tpus.get(worker.name);
  if (nodes.absent.has(worker.name)) return {kind: 'absent'};
  if (tpu && !isLeftOut(tpu, worker)) return observationOf(tpu, nodes.deployment);
  if (nodes.unreachable.includes(worker.zone)) return {kind: 'unknown'};
  const wasShown = worker.provider_state !== null || worker.queue_state !== null;
  const isExpected = worker.phase !== 'gone' && (worker.phase !== 'creating' || wasShown);
  return isExpected ? {kind: 'missing', listed_at: iso(nodes.at_ms)} : {kind: 'absent'};
}

/**
 * True if the list shows the queued resource without its node, which an earlier list showed: the list may be incomplete. A queued resource in
 * a final state is evidence by itself.
 */
export function isLeftOut({state, queued}: Tpu, worker: Worker): boolean {
  const isOver = queueStanding({queue_state: queued?.state ?? null}) === 'over';
  return state === null && worker.provider_state !== null && !isOver && !hasEnded(worker);
}

export function observationOf(tpu: Tpu, deployment: string): Observation {
  if (!isManaged(tpu, deployment)) return {kind: 'foreign', isQueued: isQueuedByUs(tpu, deployment)};
  const {state, health, symptoms, queued, created_at} = tpu;
  return {kind: 'found', state, health, symptoms, queued, incarnations: incarnationsOf(tpu), created_at};
}

export function incarnationsOf({labels, queued}: Tpu): number[] {
  const numbers = [labels, queued?.labels].map(each => each?.[INCARNATION_LABEL] ?? '');
  return [...new Set(numbers.filter(label => /^\d{1,9}$/.test(label)).map(Number))];
}
