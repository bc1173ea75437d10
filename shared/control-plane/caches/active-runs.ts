/** The active runs of each pool as worker-api sees them: workers that request work at about the same time share one read. */
import {paths, streamIndexOf} from '../../domain/names.ts';
import type {Run} from '../../domain/records/run.ts';
import type {Indexes} from '../../domain/stream/spread.ts';
import type {Filter, Now, Store} from '../../ports/ports.ts';
import type {Log} from '../calls/log.ts';
import {leftAlone, PENDING, runRecords} from '../documents/documents.ts';
import {SharedReads} from './shared-reads.ts';

type Reader = {store: Store; now: Now; log: Log};

const ACTIVE: Filter = {field: 'status', op: '==', value: 'active'};
export class ActiveRuns {
  readonly #reads = new SharedReads<Run[]>();
  readonly #indexes = new Map<string, {streams: number; indexes: Promise<Indexes>}>();

  readSince(pool: string, since_ms: number, {store, now, log}: Reader): Promise<Run[]> {
    return this.#reads.readSince(pool, since_ms, now, () => readActive({store, log}, pool));
  }

  /** Range of the indexes of pending streams. It is read again when the number of streams of the run changes. */
  indexesOf(run: Run, store: Store): Promise<Indexes> {
    const {streams_pending, streams_in_progress, streams_completed, streams_failed} = run;
    const streams = streams_pending + streams_in_progress + streams_completed + streams_failed;
    const cached = this.#indexes.get(run.run);
    if (cached?.streams === streams) return cached.indexes;
    const indexes = readIndexes(store, run.run);
    this.#indexes.set(run.run, {streams, indexes});
    indexes.catch(() => this.#indexes.delete(run.run));
    return indexes;
  }
}

async function readIndexes(store: Store, run: string): Promise<Indexes> {
  const [pending, largest] = await Promise.all([
    store.query(paths.streams(run), {where: [PENDING], limit: 1}),
    store.query(paths.streams(run), {order_by: {field: 'worker_id', direction: 'desc'}, limit: 1}),
  ]);
  const first = streamIndexOf(pending[0]?.id ?? '0');
  return {first, last: Math.max(first, streamIndexOf(largest[0]?.id ?? '0'))};
}

async function readActive({store, log}: Omit<Reader, 'now'>, pool: string): Promise<Run[]> {
  const ofPool: Filter = {field: 'pool', op: '==', value: pool};
  const active = await store.query('runs', {where: [ACTIVE, ofPool]});
  return runRecords.parseAll(active, leftAlone(log));
}
