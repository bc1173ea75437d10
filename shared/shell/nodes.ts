/** What Cloud TPU shows: every node and queued resource of ours at one instant, or that a zone gave no answer. */
import type {Observation} from '../core/life.ts';
import {parseWorkerName} from '../core/names.ts';
import {msOf} from '../core/time.ts';
import type {Worker} from '../core/worker.ts';
import type {Tpu} from '../ports.ts';
import type {Deps} from './deps.ts';
import {INCARNATION_LABEL, MANAGED} from './fleet.ts';
import {readPool} from './pools.ts';

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
  const {tpus, unreachable} = await deps.tpus.list();
  const isInPlace = ({name, zone}: Tpu) => parseWorkerName(name)?.zone === zone;
  return {
    at_ms,
    tpus: new Map(tpus.filter(isInPlace).map(tpu => [tpu.name, tpu])),
    strays: tpus.filter(tpu => isManaged(tpu) && !isInPlace(tpu)),
    unreachable,
  };
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
  return [...tpus.values()].filter(isManaged).map(tpu => tpu.name);
}

export function isManaged({labels, queued}: Tpu): boolean {
  return [labels, queued?.labels ?? labels].every(given => given['managed-by'] === MANAGED['managed-by']);
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
  if (tpu && !isManaged(tpu)) return {kind: 'foreign'};
  if (tpu) {
    const {state, health, symptoms, queued} = tpu;
    return {kind: 'found', state, health, symptoms, queued, incarnations: incarnationsOf(tpu)};
  }
  return look.unreachable.includes(worker.zone) ? {kind: 'unknown'} : {kind: 'absent'};
}

/** Empty without such a label: nothing says then that it is not the present life. */
export function incarnationsOf({labels, queued}: Tpu): number[] {
  const given = [labels, queued?.labels].map(each => each?.[INCARNATION_LABEL] ?? '');
  return [...new Set(given.filter(label => /^\d{1,9}$/.test(label)).map(Number))];
}
