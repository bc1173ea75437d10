/** Reconciles slots in batches: each batch is a transaction that reads, decides again, writes, and then publishes. */
import {billOf} from '../../domain/billing/bills.ts';
import {accrue} from '../../domain/billing/cost.ts';
import type {Stream} from '../../domain/records/stream.ts';
import type {Worker} from '../../domain/records/worker.ts';
import {decideSlots} from '../../domain/tick/decide-slots.ts';
import {
  changedSlots,
  type PlanInputs,
  type Slot,
  type SlotBatches,
  unpublishedAction,
} from '../../domain/tick/slots.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Failures} from '../calls/failures.ts';
import {wake} from '../calls/wake.ts';
import type {Deps} from '../deps.ts';
import {readSlot, readSlotDocuments, writeSlots} from './slot-documents.ts';
import {publishActions} from './tpu-operations.ts';

const MOST_SLOTS = 50;

/** `heldWorkers`: kept by a silence guard. `freedStreams`: streams whose worker is gone. `lateSlots`: slots that got no request because the plan was too old. */
export type Reconciled = {heldWorkers: Worker[]; freedStreams: Stream[]; lateSlots: string[]};

export function merged(outcomes: readonly (Reconciled | undefined)[]): Reconciled {
  return {
    heldWorkers: outcomes.flatMap(outcome => outcome?.heldWorkers ?? []),
    freedStreams: outcomes.flatMap(outcome => outcome?.freedStreams ?? []),
    lateSlots: outcomes.flatMap(outcome => outcome?.lateSlots ?? []),
  };
}

/** Decides about the slots of each batch, many in a transaction, and publishes their creates and deletes. */
export async function reconcileWorkers(
  deps: Deps,
  batches: SlotBatches,
  inputs: PlanInputs,
  failures: Failures,
): Promise<Reconciled> {
  const all: Reconciled[] = [];
  await forEachConcurrently([...batches.values()], async slots => {
    for (let first = 0; first < slots.length; first += MOST_SLOTS) {
      const part = slots.slice(first, first + MOST_SLOTS);
      all.push(await reconcileBatch(deps, part, inputs, failures));
    }
  });
  return merged(all);
}

/** Decides about slots together. If a batch fails twice, it decides slot by slot, so that one document cannot stop other slots. */
async function reconcileBatch(deps: Deps, slots: readonly Slot[], inputs: PlanInputs, failures: Failures) {
  const began_ms = deps.now();
  for (const unpublished_since_ms of [Number.POSITIVE_INFINITY, began_ms])
    try {
      return await reconcileSlots(deps, slots, inputs, unpublished_since_ms, failures);
    } catch (error) {
      const names = slots.map(({name}) => name).join(', ');
      deps.log('WARNING', `Failed to decide about ${names}, trying again: ${(error as Error).message}`);
    }
  const all: (Reconciled | undefined)[] = [];
  for (const slot of slots) {
    const alone = () => reconcileSlots(deps, [slot], inputs, began_ms, failures);
    all.push(await failures.isolate(`decide about ${slot.name}`, alone));
  }
  return merged(all);
}

/** Decides about slots from their present documents. `unpublished_since_ms`: the actions of later commits may not have been published. */
async function reconcileSlots(
  deps: Deps,
  slots: readonly Slot[],
  inputs: PlanInputs,
  unpublished_since_ms: number,
  failures: Failures,
): Promise<Reconciled> {
  const {config, store} = deps;
  const {actions, endedWorkers, heldWorkers, freedStreams, lateSlots, isOpened} = await store.transaction(
    async tx => {
      const now = deps.now();
      const turn = {deps, tx, now};
      const workers = await Promise.all(slots.map(slot => readSlot(turn, slot)));
      const current = slots.flatMap((slot, index) => {
        const worker = workers[index];
        return worker ? {slot, worker: accrue(worker, now)} : [];
      });
      const changes = changedSlots(current, inputs, config.limits, now);
      const documents = await readSlotDocuments(turn, inputs.pool.pool, changes);
      const writes = decideSlots(changes, documents, inputs, config, now);
      writeSlots(turn, documents.shared, writes);
      const unpublished = current.flatMap(({worker}) => unpublishedAction(worker, unpublished_since_ms));
      return {...writes, actions: [...unpublished, ...writes.actions]};
    },
  );
  inputs.tickBill.usd += billOf(endedWorkers);
  const names = actions.map(({kind, worker}) => `${kind} ${worker}`).join(', ');
  await failures.isolate(`publish ${names}`, () => publishActions(deps.bus, actions));
  if (isOpened) await failures.isolate('wake a tick', () => wake(deps.bus));
  return {heldWorkers, freedStreams, lateSlots};
}
