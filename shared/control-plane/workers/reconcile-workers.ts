/** Applies decisions about slots in batches: each batch is a transaction that decides again from its documents. */
import type {Slot, Terms, Turns} from '../../domain/tick/slots.ts';
import {forEachConcurrently} from '../concurrency.ts';
import type {Deps} from '../deps.ts';
import type {Failures} from '../failures.ts';
import {decideSlots, type Outcome} from './decide-slots.ts';

/** Slots of one transaction. */
const MOST_SLOTS = 50;

/** Decides about the slots of each turn, many in a transaction, and publishes their creates and deletes. */
export async function reconcileWorkers(
  deps: Deps,
  turns: Turns,
  terms: Terms,
  failures: Failures,
): Promise<Outcome> {
  const all: Outcome = {held: [], freed: []};
  await forEachConcurrently([...turns.values()], async queue => {
    for (let first = 0; first < queue.length; first += MOST_SLOTS) {
      const batch = queue.slice(first, first + MOST_SLOTS);
      const {held, freed} = await decideBatch(deps, batch, terms, failures);
      all.held.push(...held);
      all.freed.push(...freed);
    }
  });
  return all;
}

/** Decides about slots together. Repeats a failed batch once, and then decides slot by slot, so one document stops no other slot. */
async function decideBatch(
  deps: Deps,
  batch: readonly Slot[],
  terms: Terms,
  failures: Failures,
): Promise<Outcome> {
  const began_ms = deps.now();
  for (const lost_since_ms of [Number.POSITIVE_INFINITY, began_ms])
    try {
      return await decideSlots(deps, batch, {...terms, lost_since_ms}, failures);
    } catch (error) {
      const names = batch.map(({name}) => name).join(', ');
      deps.log('WARNING', `Failed to decide about ${names}, trying again: ${(error as Error).message}`);
    }
  const all: Outcome = {held: [], freed: []};
  for (const slot of batch) {
    const alone = () => decideSlots(deps, [slot], {...terms, lost_since_ms: began_ms}, failures);
    const decided = await failures.isolate(`decide about ${slot.name}`, alone);
    all.held.push(...(decided?.held ?? []));
    all.freed.push(...(decided?.freed ?? []));
  }
  return all;
}
