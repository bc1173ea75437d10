/** Runs whose worker bundle is not deployed any more, and workers whose bundle no run accepts. */
import {acceptsCode, isIdle, type Stuck} from '../../domain/run/code.ts';
import {isRunnable} from '../../domain/run/run.ts';
import {iso} from '../../domain/time.ts';
import {forEachConcurrently} from '../concurrency.ts';
import type {Deps} from '../deps.ts';
import {runRecords, workerRecords} from '../documents/documents.ts';
import {recordEvent, recordPause} from '../documents/event-log.ts';

/** Pauses each run that no worker can continue. Its reason names the remedies. */
export async function pauseStuck({store, log, now, config}: Deps, stuck: readonly Stuck[]): Promise<void> {
  await forEachConcurrently(stuck, ({run, bundle, reason}) =>
    store.transaction(async tx => {
      const current = await runRecords.get(tx, run);
      const isStuck = current?.bundle === bundle && !acceptsCode(current, config.bundle, config.bundle);
      if (!isStuck || !isRunnable(current)) return;
      const at = now();
      const paused = {...current, status: 'paused' as const, reason, updated_at: iso(at)};
      runRecords.set(tx, paused);
      recordPause(log, tx, current, paused, at);
    }),
  );
}

/** Replaces idle workers whose bundle no run accepts: the new node has the deployed bundle. */
export async function replaceOutdated({store, now, config}: Deps, names: readonly string[]): Promise<void> {
  await forEachConcurrently(names, name =>
    store.transaction(async tx => {
      const worker = await workerRecords.get(tx, name);
      if (!worker || !isIdle(worker) || worker.bundle === config.bundle) return;
      workerRecords.set(tx, {...worker, recreate: true});
      const text = `${name} is replaced: no run accepts its worker bundle any more`;
      recordEvent(tx, {kind: 'worker', worker: name, text}, now());
    }),
  );
}
