/**
 * Orphans are nodes of ours without a document, or with a document of an earlier incarnation: the Store was lost, restored or edited.
 * An orphan gets no work and costs money, so it goes. A few go at once; many go after an hour, because a restored Store may know them.
 */
import {priceOf} from '../billing/budget.ts';
import {toLeave} from '../billing/cost.ts';
import type {Prices} from '../billing/prices.ts';
import {isOlderThan, iso, msOf} from '../time.ts';
import {incarnationsOf, managedIn, type Nodes} from '../worker/nodes.ts';
import type {Worker} from '../worker/worker.ts';
import type {OrphansMark, Zone} from './placement.ts';
import type {Pool} from './pool.ts';
import {shareOf} from './silence-brake.ts';

const WAIT_S = 3600;
/** Seconds without an orphan in any list until the zone counts as free of them: one list may leave nodes out. */
const UNSEEN_S = 90;

type Workers = ReadonlyMap<string, Worker>;

export function orphansIn(nodes: Nodes, workers: Workers): string[] {
  return managedIn(nodes).filter(name => isOrphan(nodes, name, workers.get(name)));
}

function isOrphan(nodes: Nodes, name: string, worker: Worker | undefined): boolean {
  const node = nodes.tpus.get(name);
  return !worker || (node !== undefined && incarnationsOf(node).some(life => life > worker.incarnation));
}

/** Dollars that the orphans have cost since they were created, and will cost until they are gone. */
export function costOfOrphans(
  {pool, prices}: {pool: Pool; prices: Prices},
  nodes: Nodes,
  names: readonly string[],
  now: number,
): number {
  const orphans = names.flatMap(name => nodes.tpus.get(name) ?? []);
  return orphans.reduce((sum, {zone, created_at}) => {
    const usd = priceOf(prices, pool, zone) ?? 0;
    const hours = Math.max(0, now - msOf(created_at)) / 3_600_000;
    return sum + usd * hours + toLeave(usd);
  }, 0);
}

/** A zone whose mark changes with what the list shows. */
export type OrphanCount = {zone: string; orphans: number; nodes: number};

/**
 * The orphans that stay for now, and the zones to count. Orphans stay where their zone does not answer, and where many wait for their
 * hour while the budgets pay for them. Without the zones' documents all of them stay.
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
    if (nodes.unreachable.includes(zone)) {
      keep();
      continue;
    }
    const inZone = managedIn(nodes).filter(name => nodes.tpus.get(name)?.zone === zone).length;
    const count = {zone, orphans: orphans.length, nodes: inZone};
    counts.push(count);
    const known = zones.find(each => each.zone === zone)?.orphans ?? null;
    const mark = markAfter(known, count, now);
    if (mark !== null && !isOlderThan(mark.since_at, WAIT_S, now) && isPaidFor) keep();
  }
  return {held, counts};
}

/** The time at which the orphans of a mark go. */
export function endOfWait({since_at}: OrphansMark): string {
  return iso(msOf(since_at) + WAIT_S * 1000);
}

/** Once many were listed, all of them wait for the hour: a later list may leave some out and show few or none. */
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

/** Orphans, and nodes of orphans that are being deleted: a document younger than its node was made to delete it. */
export function orphansLeft(nodes: Nodes, workers: Workers): string[] {
  const isGoing = ({phase, created_at}: Worker, made_at: string) =>
    phase === 'deleting' && msOf(created_at) > msOf(made_at);
  return managedIn(nodes).filter(name => {
    const worker = workers.get(name);
    if (!worker || isOrphan(nodes, name, worker)) return true;
    return isGoing(worker, nodes.tpus.get(name)?.created_at ?? '');
  });
}
