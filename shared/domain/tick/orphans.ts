/**
 * Orphans: managed nodes without a document, or with a document of an earlier incarnation, because the database was lost, restored or edited.
 * An orphan gets no work and costs money, so it is deleted. A few orphans are deleted at once; many wait for an hour, because a restored
 * database may know them.
 */
import {priceOf} from '../billing/budget.ts';
import {costOfDeleting} from '../billing/cost.ts';
import type {Worker, Workers} from '../records/worker.ts';
import type {OrphansMark, Zone} from '../records/zone.ts';
import {isOlderThan, iso, msOf} from '../time.ts';
import {incarnationsOf, managedIn, NOT_LISTED, type Nodes} from '../worker/nodes.ts';
import {isLeftAlone} from '../zone/placement.ts';
import {shareOf} from '../zone/silence-guard.ts';
import type {Snapshot} from './snapshot.ts';

const WAIT_S = 3600;
/** A zone counts as free of orphans after this many seconds without one in a list, because one list may omit nodes. */
const UNSEEN_S = 90;

export function orphansIn(nodes: Nodes, workers: Workers, unreadable: ReadonlySet<string>): string[] {
  return managedIn(nodes).filter(name => !unreadable.has(name) && isOrphan(nodes, name, workers.get(name)));
}

function isOrphan(nodes: Nodes, name: string, worker: Worker | undefined): boolean {
  const node = nodes.tpus.get(name);
  return (
    !worker ||
    (node !== undefined && incarnationsOf(node).some(incarnation => incarnation > worker.incarnation))
  );
}

/** The orphans of a pool, and the dollars that they cost from their creation until they are gone. */
export type Orphans = {names: readonly string[]; usd: number};

export function orphansOf(
  {nodes = NOT_LISTED, workers, unreadable, pool, prices = {}}: Snapshot,
  now: number,
): Orphans {
  const names = orphansIn(nodes, workers, unreadable);
  const costs = names.map(name => {
    const {zone = '', created_at = iso(now)} = nodes.tpus.get(name) ?? {};
    const usd_per_hour = priceOf(prices, pool, zone) ?? 0;
    const hours = Math.max(0, now - msOf(created_at)) / 3_600_000;
    return usd_per_hour * hours + costOfDeleting(usd_per_hour);
  });
  return {names, usd: costs.reduce((sum, usd) => sum + usd, 0)};
}

/** Orphans and managed nodes that a list shows in a zone. */
export type OrphanCount = {zone: string; orphans: number; nodes: number};

/**
 * `held`: orphans that stay for now. `counts`: orphans of each zone to record. Orphans stay in an unreachable zone. While the budgets pay for
 * them, many orphans stay for their hour, and all stay if their zone's document is invalid or the zones could not be read.
 */
export function decideOrphans(
  nodes: Nodes,
  names: readonly string[],
  {zones, isPaidFor}: {zones: readonly Zone[] | undefined; isPaidFor: boolean},
  now: number,
): {held: ReadonlySet<string>; counts: OrphanCount[]} {
  if (!zones) return {held: new Set(names), counts: []};
  const byZone = Map.groupBy(names, name => nodes.tpus.get(name)?.zone ?? '');
  const marked = zones.flatMap(({zone, orphans}) => (orphans ? zone : []));
  const held = new Set<string>();
  const counts: OrphanCount[] = [];
  for (const zone of new Set([...byZone.keys(), ...marked])) {
    const orphans = byZone.get(zone) ?? [];
    const keep = () => {
      for (const name of orphans) held.add(name);
    };
    const known = zones.find(each => each.zone === zone);
    if (nodes.unreachable.includes(zone) || (known && isLeftAlone(known) && isPaidFor)) {
      keep();
      continue;
    }
    const inZone = managedIn(nodes).filter(name => nodes.tpus.get(name)?.zone === zone).length;
    const count = {zone, orphans: orphans.length, nodes: inZone};
    counts.push(count);
    const before = known?.orphans ?? null;
    const mark = markAfter(before, count, now);
    if (mark !== null && !isOlderThan(mark.since_at, WAIT_S, now) && isPaidFor) keep();
  }
  return {held, counts};
}

export const endOfWait = ({since_at}: OrphansMark) => iso(msOf(since_at) + WAIT_S * 1000);

/** The record of a zone after a list. Many orphans wait the whole hour, even if a later list shows few or none. */
export function markAfter(
  mark: OrphansMark | null,
  {orphans, nodes}: Pick<OrphanCount, 'orphans' | 'nodes'>,
  now: number,
): OrphansMark | null {
  const wasLong = mark !== null && isOlderThan(mark.unseen_since_at, UNSEEN_S, now);
  if (orphans === 0) {
    if (mark === null || wasLong) return null;
    return mark.unseen_since_at === null ? {...mark, unseen_since_at: iso(now)} : mark;
  }
  const areMany = orphans > shareOf(nodes);
  if (mark === null || wasLong) return areMany ? {since_at: iso(now), unseen_since_at: null} : null;
  return mark.unseen_since_at === null ? mark : {...mark, unseen_since_at: null};
}

/** Orphans, and nodes of orphans that are being deleted: the document of such a node is younger than the node. */
export function orphansLeft(nodes: Nodes, workers: Workers): string[] {
  const isGoing = ({phase, created_at}: Worker, made_at: string) =>
    phase === 'deleting' && msOf(created_at) > msOf(made_at);
  return managedIn(nodes).filter(name => {
    const worker = workers.get(name);
    if (!worker || isOrphan(nodes, name, worker)) return true;
    return isGoing(worker, nodes.tpus.get(name)?.created_at ?? '');
  });
}
