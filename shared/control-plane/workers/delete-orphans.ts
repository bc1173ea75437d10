import {orphansIn, orphansLeft} from '../../domain/tick/orphans.ts';
import {planBudgets} from '../../domain/tick/plan-tick.ts';
import {slotOf, slotsThatChange} from '../../domain/tick/slots.ts';
import type {Snapshot} from '../../domain/tick/snapshot.ts';
import type {Tpu} from '../../domain/worker/nodes.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Failures} from '../calls/failures.ts';
import type {Deps} from '../deps.ts';
import {recordEventNow} from '../documents/event-log.ts';
import {type Reconciled, reconcileWorkers} from './reconcile-workers.ts';

/**
 * Deletes every orphan of a pool, however many, because an operator asked for a rebuild. Returns the names of the remaining nodes. While
 * epochs are read from the bucket, no worker of the lost database may store a shard.
 */
export async function deleteOrphans(
  deps: Deps,
  snapshot: Snapshot,
  failures: Failures,
): Promise<Reconciled & {left: string[]}> {
  const {nodes, workers, unreadable} = snapshot;
  const {limits} = deps.config;
  if (!nodes) throw new Error('Failed to list the nodes; the task tries again');
  const silent = nodes.unreachable.filter(zone => isOurs(snapshot, deps, zone));
  if (silent.length > 0)
    throw new Error(`Failed to rebuild: ${silent.join(', ')} did not list its nodes; the task tries again`);
  const now = deps.now();
  const inputs = {...planBudgets(snapshot, deps.config, now).inputs, nodes};
  const names = orphansIn(nodes, workers, unreadable);
  const slots = names.flatMap(name => slotOf(name, 'unwanted', workers));
  const {deletes} = slotsThatChange(slots, inputs, limits, now);
  return {...(await reconcileWorkers(deps, deletes, inputs, failures)), left: orphansLeft(nodes, workers)};
}

/** True for a zone of the pool, and for any zone from which the pool ever requested a node. */
function isOurs({pool, zones = []}: Snapshot, {config}: Deps, zone: string): boolean {
  const deployed = pool.pool === config.pool.pool ? config.pool.zones : [];
  return [...pool.zones, ...deployed, ...zones.map(({zone}) => zone)].includes(zone);
}

/** Deletes nodes with our labels that fit no slot, because they get no work and cost money. */
export async function deleteStrays(deps: Deps, strays: readonly Tpu[]): Promise<void> {
  await forEachConcurrently(strays, async ({name, zone}) => {
    const text = `${name} in ${zone} has our label, and no slot has its name there: deleting it`;
    try {
      await deps.tpus.delete(name, zone);
      await recordEventNow(deps, {kind: 'worker', worker: name, text});
    } catch (error) {
      deps.log('ERROR', `${text}: ${(error as Error).message}`);
    }
  });
}
