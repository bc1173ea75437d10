/** What Cloud TPU shows: every node and queued resource of ours at one instant, or that a zone gave no answer. */

import {parseWorkerName} from '../../domain/names.ts';
import {iso, msOf} from '../../domain/time.ts';
import type {Observation} from '../../domain/worker/observation.ts';
import {queueStanding} from '../../domain/worker/provider-states.ts';
import {isServedFor, type Moment} from '../../domain/worker/served-time.ts';
import {hasEnded, type Worker} from '../../domain/worker/worker.ts';
import type {Tpu} from '../../ports.ts';
import {abreast} from '../state/concurrency.ts';
import type {Deps} from '../state/deps.ts';
import {readPool} from '../state/pools.ts';

/** The label that marks a node as ours, and the one that says which life of its slot it is. */
export const MANAGED = {'managed-by': 'gleaner'};
export const INCARNATION_LABEL = 'gleaner-incarnation';

/**
 * What Cloud TPU listed, and when that was asked for. `tpus`: by the slot whose name and zone they have. `strays`: those with our
 * label that no slot can have.
 */
export type Look = {
  at_ms: number;
  tpus: ReadonlyMap<string, Tpu>;
  strays: readonly Tpu[];
  unreachable: readonly string[];
  /** Names that the list leaves out, and of which `get` answered that there is no such node. */
  absent: ReadonlySet<string>;
};

/** Nothing was seen: it is older than whatever is known. */
export const NOT_LOOKED: Look = {at_ms: -1, tpus: new Map(), strays: [], unreachable: [], absent: new Set()};

/** Nodes as Cloud TPU lists them now. */
export async function lookAtNodes(deps: Deps): Promise<Look> {
  const at_ms = deps.now();
  const listed = await deps.tpus.list();
  const tpus = new Map<string, Tpu>();
  const strays: Tpu[] = [];
  for (const tpu of listed.tpus)
    if (parseWorkerName(tpu.name)?.zone === tpu.zone) tpus.set(tpu.name, tpu);
    else if (isManaged(tpu)) strays.push(tpu);
  return {at_ms, tpus, strays, unreachable: listed.unreachable, absent: new Set()};
}

/** Seconds between two lists that both leave a node out. */
const MISSING_S = 60;

/**
 * Workers whose nodes the list leaves out and that may be gone: those that are being deleted, and those that a list of a minute ago
 * left out as well and that are unheard for a lease.
 */
export function missingIn(
  {config}: Deps,
  look: Look,
  workers: ReadonlyMap<string, Worker>,
  {served}: Moment,
): Worker[] {
  if (look === NOT_LOOKED) return [];
  const {lease_s} = config;
  return [...workers.values()].filter(worker => {
    if (observe(look, worker).kind !== 'missing') return false;
    if (worker.phase === 'deleting') return true;
    const {heartbeat_at, phase_since_at, missing_since_at} = worker;
    return (
      isServedFor(served, heartbeat_at ?? phase_since_at, lease_s) &&
      missing_since_at !== null &&
      look.at_ms - msOf(missing_since_at) >= MISSING_S * 1000
    );
  });
}

/** Asks Cloud TPU for each node that the list leaves out. An error says nothing about the node. */
export async function lookForMissing(deps: Deps, look: Look, missing: readonly Worker[]): Promise<Look> {
  const tpus = new Map(look.tpus);
  const absent = new Set<string>();
  await abreast(missing, async worker => {
    const {name, zone} = worker;
    try {
      const tpu = await deps.tpus.get(name, zone);
      if (tpu && !isLeftOut(tpu, worker)) tpus.set(name, tpu);
      else absent.add(name);
    } catch (error) {
      deps.log('WARNING', `Failed to ask whether ${name} exists: ${(error as Error).message}`, {
        worker: name,
      });
    }
  });
  return {...look, tpus, absent};
}

/** Whether there is, or may be, a node of ours, whatever documents say. */
export async function isAnyNodeLeft(deps: Deps): Promise<boolean> {
  const {tpus, strays, unreachable} = await lookAtNodes(deps);
  return managed(tpus).length > 0 || strays.length > 0 || (await isBlind(deps, unreachable));
}

/** A zone that does not answer may hide a node that no document knows, also when the pool has left it: all that it ever had count. */
export async function isBlind(deps: Deps, unreachable: readonly string[]): Promise<boolean> {
  if (unreachable.length === 0) return false;
  const {zones} = await readPool(deps);
  const asked = await deps.store.query('zones');
  const ours = new Set([...zones, ...deps.config.pool.zones, ...asked.map(({id}) => id)]);
  return unreachable.some(zone => ours.has(zone));
}

/** Nodes with our label, whether or not a document knows them: a lost database must not leave a TPU behind. */
export function managed(tpus: ReadonlyMap<string, Tpu>): string[] {
  return [...tpus.values()].filter(tpu => isManaged(tpu) || isQueuedByUs(tpu)).map(tpu => tpu.name);
}

export function isManaged({labels, queued}: Tpu): boolean {
  return [labels, queued?.labels ?? labels].every(isOurs);
}

/** The request in the queue is ours, though the node of its name may be somebody else's. */
function isQueuedByUs({queued}: Tpu): boolean {
  return queued !== null && isOurs(queued.labels);
}

function isOurs(labels: Tpu['labels']): boolean {
  return labels['managed-by'] === MANAGED['managed-by'];
}

/** Whether neither the node nor its request in the queue is ours: its name was taken before we asked for it. */
export function isForeign(tpu: Tpu): boolean {
  return !isManaged(tpu) && !isQueuedByUs(tpu);
}

/**
 * What a look shows of a slot. A look from before the slot entered its phase, or before another one saw something new, says
 * nothing about it: the node may have come or gone since.
 */
export function observe(look: Look, worker: Worker): Observation {
  const {phase_since_at, provider_since_at} = worker;
  if (look.at_ms < Math.max(msOf(phase_since_at), msOf(provider_since_at ?? phase_since_at)))
    return {kind: 'unknown'};
  const tpu = look.tpus.get(worker.name);
  if (look.absent.has(worker.name)) return {kind: 'absent'};
  if (tpu && !isLeftOut(tpu, worker)) return observationOf(tpu);
  if (look.unreachable.includes(worker.zone)) return {kind: 'unknown'};
  const wasShown = worker.provider_state !== null || worker.queue_state !== null;
  const isExpected = worker.phase !== 'gone' && (worker.phase !== 'creating' || wasShown);
  return isExpected ? {kind: 'missing', listed_at: iso(look.at_ms)} : {kind: 'absent'};
}

/**
 * Only the queued resource is there, and the node was: the list of nodes may be incomplete where that of the queue is not. A queued
 * resource that is over is evidence by itself.
 */
function isLeftOut({state, queued}: Tpu, worker: Worker): boolean {
  const isOver = queueStanding({queue_state: queued?.state ?? null}) === 'over';
  return state === null && worker.provider_state !== null && !isOver && !hasEnded(worker);
}

export function observationOf(tpu: Tpu): Observation {
  if (!isManaged(tpu)) return {kind: 'foreign', isQueued: isQueuedByUs(tpu)};
  const {state, health, symptoms, queued, created_at} = tpu;
  return {kind: 'found', state, health, symptoms, queued, incarnations: incarnationsOf(tpu), created_at};
}

/** Empty without such a label: nothing says then that it is not the present life. */
export function incarnationsOf({labels, queued}: Tpu): number[] {
  const given = [labels, queued?.labels].map(each => each?.[INCARNATION_LABEL] ?? '');
  return [...new Set(given.filter(label => /^\d{1,9}$/.test(label)).map(Number))];
}
