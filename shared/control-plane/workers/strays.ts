import type {Tpu} from '../../domain/worker/nodes.ts';
import {forEachConcurrently} from '../concurrency.ts';
import type {Deps} from '../deps.ts';
import {recordEventNow} from '../documents/event-log.ts';

/** Deletes nodes with our labels that fit no slot: such nodes get no work and cost money. */
export async function deleteStrays({tpus, store, now, log}: Deps, strays: readonly Tpu[]): Promise<void> {
  await forEachConcurrently(strays, async ({name, zone}) => {
    const text = `${name} in ${zone} has our label, and no slot has its name there: deleting it`;
    try {
      await tpus.delete(name, zone);
      await recordEventNow({store, now}, {kind: 'worker', worker: name, text});
    } catch (error) {
      log('ERROR', `${text}: ${(error as Error).message}`);
    }
  });
}
