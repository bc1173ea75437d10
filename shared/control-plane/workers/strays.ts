import {paths} from '../../domain/names.ts';
import type {Tpu} from '../../domain/worker/nodes.ts';
import {forEachConcurrently} from '../state/concurrency.ts';
import type {Deps} from '../state/deps.ts';
import {skipIfInvalid, workerRecords} from '../state/documents.ts';
import {recordEventNow} from '../state/event-log.ts';

/** Deletes nodes with our label that fit no slot: such nodes get no work and cost money. */
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

/** Deletes worker documents that no reader accepts: the node of such a worker is an orphan from the next tick on. */
export async function dropInvalidWorkers({store, log}: Deps, names: readonly string[]): Promise<void> {
  await forEachConcurrently(names, name =>
    store.transaction(async tx => {
      const path = paths.worker(name);
      if ((await tx.get(path)) && !(await skipIfInvalid(log, () => workerRecords.get(tx, name))))
        tx.delete(path);
    }),
  );
}
