import {priceOf} from '../../domain/billing/budget.ts';
import type {Worker} from '../../domain/records/worker.ts';
import {endOfWait, markAfter, type OrphanCount} from '../../domain/tick/orphans.ts';
import {type TickPlan, zoneAfterHellos} from '../../domain/tick/plan-tick.ts';
import type {PlanInputs} from '../../domain/tick/slots.ts';
import type {Snapshot} from '../../domain/tick/snapshot.ts';
import {iso} from '../../domain/time.ts';
import {afterAgent} from '../../domain/zone/limiter.ts';
import {withHeld} from '../../domain/zone/silence-guard.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Deps} from '../deps.ts';
import {poolRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {changeZone} from '../documents/zones.ts';

/** Ends silence guards and stops of creates, in zones and pool, after the first heartbeats of workers. */
export async function applyHellos(deps: Deps, {zones, pool_at}: TickPlan['hellos'], snapshot: Snapshot) {
  const {workers, servedTime} = snapshot;
  const {pool} = snapshot.pool;
  const byZone = Map.groupBy(workers.values(), ({zone}) => zone);
  await forEachConcurrently(zones, name =>
    changeZone(deps, {zone: name, pool}, (zone, _, now) =>
      zoneAfterHellos(zone, byZone.get(name) ?? [], {now, servedTime}),
    ),
  );
  if (pool_at === undefined) return;
  await deps.store.transaction(async tx => {
    const current = await poolRecords.find(tx, pool, deps.config.pool);
    if (current) poolRecords.set(tx, {...current, limiter: afterAgent(current.limiter, pool_at)});
  });
}

/** Stores the time since which many nodes of a zone have no document, and raises an alert with the remedy. */
export async function markOrphans(deps: Deps, counts: readonly OrphanCount[], {pool, prices}: PlanInputs) {
  await forEachConcurrently(counts, count =>
    changeZone(deps, {zone: count.zone, pool: pool.pool}, (zone, tx, now) => {
      const orphans = markAfter(zone.orphans, count, now);
      if (orphans === zone.orphans) return zone;
      if (orphans !== null && orphans.since_at !== zone.orphans?.since_at) {
        const usd = priceOf(prices, pool, zone.zone);
        const cost =
          usd === null ? 'at an unknown price' : `for $${(usd * count.orphans).toFixed(2)} an hour`;
        const text = `${count.orphans} of the ${count.nodes} nodes in ${zone.zone} have no document, ${cost}: the database was lost, or is older than the nodes. Run \`gleaner rebuild\`, which deletes these nodes and rebuilds the documents from the bucket; or restore the database. Otherwise the nodes are deleted after ${endOfWait(orphans)}`;
        deps.log('ERROR', text, {zone: zone.zone, signal: 'orphans'});
        recordEvent(tx, {kind: 'worker', text}, now);
      }
      return {...zone, orphans, updated_at: iso(now)};
    }),
  );
}

/** Stores which silent workers each zone holds, and raises an alert with their cost. */
export async function reportHeld(deps: Deps, {pool: {pool}, zones = []}: Snapshot, held: readonly Worker[]) {
  const byZone = Map.groupBy(held, ({zone}) => zone);
  const names = new Set([
    ...byZone.keys(),
    ...zones.flatMap(({zone, silence_guard}) => (silence_guard ? zone : [])),
  ]);
  await forEachConcurrently([...names], async name => {
    const workers = byZone.get(name) ?? [];
    const text = workers.length > 0 ? alertOf(name, workers) : `${name} has no silent workers any more`;
    if (workers.length > 0) deps.log('ERROR', text, {zone: name, signal: 'silence-guard'});
    await changeZone(deps, {zone: name, pool}, (zone, tx, now) => {
      if (!zone.silence_guard) return zone;
      const silence_guard = withHeld(zone.silence_guard, workers);
      if (
        silence_guard.held === zone.silence_guard.held &&
        silence_guard.held_usd_per_hour === zone.silence_guard.held_usd_per_hour
      )
        return zone;
      recordEvent(tx, {kind: 'zone', text}, now);
      return {...zone, silence_guard};
    });
  });
}

function alertOf(zone: string, workers: readonly Worker[]): string {
  const prices = workers.flatMap(({usd_per_hour}) => usd_per_hour ?? []);
  const usd = prices.reduce((sum, usd_per_hour) => sum + usd_per_hour, 0);
  const cost = prices.length < workers.length ? 'at an unknown price' : `for $${usd.toFixed(2)} an hour`;
  const names = workers.slice(0, 5).map(({name}) => name);
  const others = workers.length > names.length ? ` and ${workers.length - names.length} more` : '';
  return `${zone} keeps ${workers.length} silent workers ${cost} until a new worker sends a heartbeat: ${names}${others}; check worker-api and the network. A "delete" message ends a worker at once`;
}
