/** The active runs as worker-api sees them: all workers that request work at about the same time share one read. */
import type {Run} from '../../domain/run/run.ts';
import type {Now, Store} from '../../ports.ts';
import {runRecords} from './documents.ts';
import type {Log} from './log.ts';

export class ActiveRuns {
  #read: {at_ms: number; runs: Promise<Run[]>} | undefined;

  /** Returns the active runs as they were at `since_ms` or later. */
  readSince(since_ms: number, {store, now, log}: {store: Store; now: Now; log: Log}): Promise<Run[]> {
    if (this.#read && this.#read.at_ms >= since_ms) return this.#read.runs;
    const runs = readActive({store, log});
    const read = {at_ms: now(), runs};
    this.#read = read;
    runs.catch(() => {
      if (this.#read === read) this.#read = undefined;
    });
    return runs;
  }
}

async function readActive({store, log}: {store: Store; log: Log}): Promise<Run[]> {
  const active = await store.query('runs', {where: [{field: 'status', op: '==', value: 'active'}]});
  return runRecords.parseAll(active, error => log('ERROR', error.message));
}
