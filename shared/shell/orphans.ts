/**
 * Nodes of ours without a document: the Store was lost or edited. An orphan can get no work and costs money, so it goes: a few at once,
 * many after an hour, because a Store that comes back from its backup knows them again.
 */
import {shareOf} from '../core/brake.ts';
import {paths} from '../core/names.ts';
import type {Zone} from '../core/placement.ts';
import type {Pool} from '../core/pool.ts';
import type {Prices} from '../core/prices.ts';
import {isOlderThan, iso, msOf} from '../core/time.ts';
import type {Worker} from '../core/worker.ts';
import {abreast} from './abreast.ts';
import type {Deps} from './deps.ts';
import {zoneOf} from './fleet.ts';
import {priceOf} from './money.ts';
import {type Look, managed, NOT_LOOKED} from './nodes.ts';
import {unlessBroken, workerRecords, zoneRecords} from './records.ts';
import {tell} from './timeline.ts';

const WAIT_S = 3600;

type Workers = ReadonlyMap<string, Worker>;

/** The nodes of ours that no document knows. */
export function orphansIn(look: Look, workers: Workers): string[] {
  return managed(look.tpus).filter(name => !workers.has(name));
}

/** The orphans that do not go yet: those of zones with many of them, until an hour after they were first seen. */
export async function heldOrphans(
  deps: Deps,
  look: Look,
  {workers, broken}: {workers: Workers; broken: ReadonlySet<string>},
  plan: {pool: Pool; prices: Prices; zones: readonly Zone[]},
): Promise<Set<string>> {
  if (look === NOT_LOOKED) return new Set();
  await dropBroken(deps, look, broken);
  const orphans = new Map<string, string[]>();
  const held = new Set<string>();
  await abreast(orphansIn(look, workers), async name => {
    const zone = look.tpus.get(name)?.zone ?? '';
    // The workers were read while the list was under way, and a node may have got its document since.
    const isKnown = (await deps.store.get(paths.worker(name))) !== undefined;
    if (isKnown) held.add(name);
    else orphans.set(zone, [...(orphans.get(zone) ?? []), name]);
  });
  const named = plan.zones.filter(zone => zone.orphans !== null).map(({zone}) => zone);
  await abreast([...new Set([...orphans.keys(), ...named])], async zone => {
    const names = orphans.get(zone) ?? [];
    const isUnknown = look.unreachable.includes(zone);
    if (isUnknown || (await areHeld(deps, look, zone, names, plan))) for (const name of names) held.add(name);
  });
  return held;
}

/** Whether the orphans of a zone wait; the zone's document remembers since when. */
async function areHeld(
  deps: Deps,
  look: Look,
  zone: string,
  names: readonly string[],
  {pool, prices, zones}: {pool: Pool; prices: Prices; zones: readonly Zone[]},
): Promise<boolean> {
  const nodes = managed(look.tpus).filter(name => look.tpus.get(name)?.zone === zone).length;
  const areMany = names.length > shareOf(nodes);
  const since_at = zones.find(known => known.zone === zone)?.orphans?.since_at;
  // Once many were seen, all wait: a later list may leave some of them out, and then shows few.
  if (names.length > 0 && since_at !== undefined) return !isOlderThan(since_at, WAIT_S, deps.now());
  if (areMany === (since_at !== undefined)) return false;
  await deps.store.transaction(async tx => {
    const now = deps.now();
    const known = await zoneOf(deps, tx, zone, now);
    if (areMany === (known.orphans !== null)) return;
    const orphans = areMany ? {since_at: iso(now)} : null;
    zoneRecords.set(tx, {...known, orphans, updated_at: iso(now)});
    if (!areMany) return;
    const usd = priceOf(prices, pool, zone);
    const cost = usd === null ? 'at an unknown price' : `for $${(usd * names.length).toFixed(2)} an hour`;
    const text = `${names.length} of the ${nodes} nodes in ${zone} have no document, ${cost}: the database was lost. Run \`gleaner rebuild\`, which deletes them and makes the documents again from the bucket; or restore the database. Without either they are deleted after ${iso(now + WAIT_S * 1000)}`;
    deps.log('ERROR', text, {zone});
    tell(tx, {kind: 'worker', text}, now);
  });
  return areMany;
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
    return !worker || isGoing(worker, look.tpus.get(name)?.created_at ?? '');
  });
}
