/** A fleet without work: every worker has a READY node, and the only run is paused. */
import {runRecords, streamRecords, workerRecords} from '../../../shared/control-plane/documents/documents.ts';
import type {Worker} from '../../../shared/domain/records/worker.ts';
import {aRun, aStream, aTpu, at, aWorker} from '../builders.ts';
import {World} from '../world.ts';

/** Workers with a READY node in one zone, heard a moment ago, and a run that is paused. */
export async function aPausedWorld(workers: number, changes: Partial<Worker> = {}): Promise<World> {
  const world = new World({
    GLEANER_ZONES: 'us-central1-a',
    GLEANER_WORKERS_PER_ZONE: String(workers),
    GLEANER_MAX_WORKERS: '1000',
  });
  await world.store.transaction(async tx => {
    runRecords.set(tx, aRun({status: 'paused'}));
    streamRecords.set(tx, aStream());
  });
  const names = Array.from({length: workers}, (_, slot) => `tpu-us-central1-a-${slot}`);
  await world.store.transaction(async tx => {
    for (const name of names) workerRecords.set(tx, anIdleWorker({name, ...changes}));
  });
  for (const name of names) world.tpus.add(aTpu({name}));
  return world;
}

/** Writes workers that are idle, unless their changes say otherwise. */
export async function saveWorkers(world: World, ...workers: Partial<Worker>[]): Promise<void> {
  await world.store.transaction(async tx => {
    for (const changes of workers)
      workerRecords.set(tx, aWorker({phase: 'idle', heartbeat_at: at(0), ready_at: at(0), ...changes}));
  });
}

export function anIdleWorker(changes: Partial<Worker>): Worker {
  const heard = {heartbeat_at: at(0), progress_at: at(0), ready_at: at(0), provider_state: 'READY'};
  return aWorker({phase: 'idle', health: 'HEALTHY', usd_per_hour: 1, ...heard, ...changes});
}
