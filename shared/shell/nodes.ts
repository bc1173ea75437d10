/** What Cloud TPU shows: every node and queued resource of ours at one instant, or that a zone gave no answer. */
import type {Observation} from '../core/life.ts';
import {parseWorkerName} from '../core/names.ts';
import {msOf} from '../core/time.ts';
import type {Worker} from '../core/worker.ts';
import {TpuError} from '../errors.ts';
import type {Tpu} from '../ports.ts';
import type {Deps} from './deps.ts';
import {readPool} from './pools.ts';

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
};

/** Nothing was seen: it is older than whatever is known. */
export const NOT_LOOKED: Look = {at_ms: -1, tpus: new Map(), strays: [], unreachable: []};

/** Nodes as Cloud TPU lists them now. */
export async function lookAtNodes(deps: Deps): Promise<Look> {
  const at_ms = deps.now();
  const listed = await deps.tpus.list();
  const tpus = new Map<string, Tpu>();
  const strays: Tpu[] = [];
  for (const tpu of listed.tpus)
    if (parseWorkerName(tpu.name)?.zone === tpu.zone) tpus.set(tpu.name, tpu);
    else if (isManaged(tpu)) strays.push(tpu);
  return {at_ms, tpus, strays, unreachable: listed.unreachable};
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

/**
 * Whether the node of the worker's name is one that we did not make. Only of a worker that no look before has shown this is asked: then
 * its create may have found the name taken.
 */
export function isSomebodyElses({tpus, unreachable}: Look, worker: Worker): boolean {
  if (worker.provider_state !== null || worker.queue_state !== null) return false;
  const found = tpus.get(worker.name);
  if (!found && unreachable.includes(worker.zone))
    throw new TpuError('transient', worker.zone, `${worker.zone} does not say whose ${worker.name} is`);
  // What is deleted is the request in the queue, where there is one, with the node that came of it and no other.
  return found !== undefined && !isManaged(found) && !isQueuedByUs(found);
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
  if (tpu && !isManaged(tpu)) return {kind: 'foreign', isQueued: isQueuedByUs(tpu)};
  if (tpu) {
    const {state, health, symptoms, queued, created_at} = tpu;
    return {kind: 'found', state, health, symptoms, queued, incarnations: incarnationsOf(tpu), created_at};
  }
  return look.unreachable.includes(worker.zone) ? {kind: 'unknown'} : {kind: 'absent'};
}

/** Empty without such a label: nothing says then that it is not the present life. */
export function incarnationsOf({labels, queued}: Tpu): number[] {
  const given = [labels, queued?.labels].map(each => each?.[INCARNATION_LABEL] ?? '');
  return [...new Set(given.filter(label => /^\d{1,9}$/.test(label)).map(Number))];
}
