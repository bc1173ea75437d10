/**
 * Orphans: nodes of ours without a document, or with one of an earlier incarnation. The Store was lost, restored or edited. An orphan
 * can get no work and costs money, so it goes: a few at once, many after an hour, because a Store that comes back knows them again.
 */

import {toLeave} from '../../domain/billing/cost.ts';
import type {Prices} from '../../domain/billing/prices.ts';
import type {OrphansMark, Zone} from '../../domain/fleet/placement.ts';
import type {Pool} from '../../domain/fleet/pool.ts';
import {shareOf} from '../../domain/fleet/silence-brake.ts';
import {paths} from '../../domain/names.ts';
import {isOlderThan, iso, msOf} from '../../domain/time.ts';
import type {Worker} from '../../domain/worker/worker.ts';
import {abreast} from '../state/concurrency.ts';
import type {Deps} from '../state/deps.ts';
import {unlessBroken, workerRecords, zoneRecords} from '../state/documents.ts';
import {tell} from '../state/event-log.ts';
import {priceOf} from './budget.ts';
import {incarnationsOf, type Look, managed, NOT_LOOKED} from './provider-snapshot.ts';
import {zoneOf} from './tpu-operations.ts';

const WAIT_S = 3600;
/** A list may leave nodes out: only after so many seconds without an orphan there is none any more. */
const UNSEEN_S = 90;

type Workers = ReadonlyMap<string, Worker>;
type Budgets = {pool: Pool; prices: Prices; left_usd: number};

export function orphansIn(look: Look, workers: Workers): string[] {
  return managed(look.tpus).filter(name => isOrphan(look, name, workers.get(name)));
}

function isOrphan(look: Look, name: string, worker: Worker | undefined): boolean {
  const node = look.tpus.get(name);
  return !worker || (node !== undefined && incarnationsOf(node).some(life => life > worker.incarnation));
}

/** Dollars that orphans have cost since they were made, and will until they are gone. */
export function costOfOrphans(
  {pool, prices}: Budgets,
  look: Look,
  names: readonly string[],
  now: number,
): number {
  const nodes = names.flatMap(name => look.tpus.get(name) ?? []);
  return nodes.reduce((sum, {zone, created_at}) => {
    const usd = priceOf(prices, pool, zone) ?? 0;
    const hours = Math.max(0, now - msOf(created_at)) / 3_600_000;
    return sum + usd * hours + toLeave(usd);
  }, 0);
}

/** The orphans that do not go yet: those of zones with many of them, for an hour, while the budgets pay for them. */
export async function heldOrphans(
  deps: Deps,
  look: Look,
  {workers, broken}: {workers: Workers; broken: ReadonlySet<string>},
  plan: Budgets & {zones: readonly Zone[]},
): Promise<Set<string>> {
  if (look === NOT_LOOKED) return new Set();
  await dropBroken(deps, look, broken);
  const orphans = new Map<string, string[]>();
  const held = new Set<string>();
  await abreast(orphansIn(look, workers), async name => {
    const zone = look.tpus.get(name)?.zone ?? '';
    // The workers were read while the list was under way, and a node may have got its document since.
    const worker = await unlessBroken(deps, () => workerRecords.get(deps.store, name));
    if (isOrphan(look, name, worker)) orphans.set(zone, [...(orphans.get(zone) ?? []), name]);
    else held.add(name);
  });
  const cost = costOfOrphans(plan, look, [...orphans.values()].flat(), deps.now());
  const isPaidFor = cost < plan.left_usd;
  const marked = plan.zones.filter(zone => zone.orphans !== null).map(({zone}) => zone);
  await abreast([...new Set([...orphans.keys(), ...marked])], async zone => {
    const names = orphans.get(zone) ?? [];
    const isUnknown = look.unreachable.includes(zone);
    if (isUnknown || ((await doWait(deps, look, zone, names, plan)) && isPaidFor))
      for (const name of names) held.add(name);
  });
  return held;
}

/** Whether the orphans of a zone wait; the zone's document remembers since when. */
async function doWait(
  deps: Deps,
  look: Look,
  zone: string,
  names: readonly string[],
  {pool, prices, zones}: Budgets & {zones: readonly Zone[]},
): Promise<boolean> {
  const nodes = managed(look.tpus).filter(name => look.tpus.get(name)?.zone === zone).length;
  const areMany = names.length > shareOf(nodes);
  const after = (mark: OrphansMark | null) => markAfter(mark, names.length, areMany, deps.now());
  const seen = zones.find(known => known.zone === zone)?.orphans ?? null;
  let mark = after(seen);
  if (mark !== seen)
    mark = await deps.store.transaction(async tx => {
      const now = deps.now();
      const known = await zoneOf(deps, tx, zone, now);
      const orphans = after(known.orphans);
      if (orphans === known.orphans) return orphans;
      zoneRecords.set(tx, {...known, orphans, updated_at: iso(now)});
      if (orphans === null || orphans.since_at === known.orphans?.since_at) return orphans;
      const usd = priceOf(prices, pool, zone);
      const cost = usd === null ? 'at an unknown price' : `for $${(usd * names.length).toFixed(2)} an hour`;
      const text = `${names.length} of the ${nodes} nodes in ${zone} have no document, ${cost}: the database was lost, or is older than the nodes. Run \`gleaner rebuild\`, which deletes them and makes the documents again from the bucket; or restore the database as it was. Without either they are deleted after ${iso(now + WAIT_S * 1000)}`;
      deps.log('ERROR', text, {zone});
      tell(tx, {kind: 'worker', text}, now);
      return orphans;
    });
  return mark !== null && !isOlderThan(mark.since_at, WAIT_S, deps.now());
}

/** Once many were seen, all wait for the hour: a later list may leave some of them out, and then shows few or none. */
function markAfter(
  mark: OrphansMark | null,
  orphans: number,
  areMany: boolean,
  now: number,
): OrphansMark | null {
  const wasLong = mark !== null && isOlderThan(mark.unseen_since_at, UNSEEN_S, now);
  if (orphans === 0) {
    if (mark === null || wasLong) return null;
    return mark.unseen_since_at === null ? {...mark, unseen_since_at: iso(now)} : mark;
  }
  if (mark === null || wasLong) return areMany ? {since_at: iso(now), unseen_since_at: null} : null;
  return mark.unseen_since_at === null ? mark : {...mark, unseen_since_at: null};
}

/** The document of a worker that no reader accepts says nothing: its node is an orphan from the next look on. */
async function dropBroken(deps: Deps, look: Look, broken: ReadonlySet<string>): Promise<void> {
  const listed = managed(look.tpus).filter(name => broken.has(name));
  await abreast(listed, name =>
    deps.store.transaction(async tx => {
      const path = paths.worker(name);
      if ((await tx.get(path)) && !(await unlessBroken(deps, () => workerRecords.get(tx, name))))
        tx.delete(path);
    }),
  );
}

/** Orphans and the nodes of orphans that are being deleted: a document that is younger than its node was made to delete it. */
export function orphansLeft(look: Look, workers: Workers): string[] {
  const isGoing = ({phase, created_at}: Worker, made_at: string) =>
    phase === 'deleting' && msOf(created_at) > msOf(made_at);
  return managed(look.tpus).filter(name => {
    const worker = workers.get(name);
    if (!worker || isOrphan(look, name, worker)) return true;
    return isGoing(worker, look.tpus.get(name)?.created_at ?? '');
  });
}
