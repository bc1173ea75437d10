/** Counts the operations of a Store as Firestore bills them, and delays each round trip. */
import {setTimeout as sleep} from 'node:timers/promises';
import type {CollectionPath, Document, Store} from '../../shared/ports.ts';

/**
 * Documents read, written and deleted. A query reads at least one document. A count or a sum reads one for each thousand. The reads of
 * a transaction that runs again count again.
 */
export type Usage = {
  reads: number;
  writes: number;
  deletes: number;
  /** Round trips. */
  calls: number;
  transactions: number;
  /** Documents and bytes of the largest commit. */
  most_writes: number;
  most_bytes: number;
};

const AGGREGATED_PER_READ = 1000;

export function noUsage(): Usage {
  return {reads: 0, writes: 0, deletes: 0, calls: 0, transactions: 0, most_writes: 0, most_bytes: 0};
}

export function metered(
  store: Store,
  usage: Usage,
  options: {latency_ms: number; documentsIn: (collection: CollectionPath) => number},
): Store {
  const call = async <T>(ask: () => Promise<T>): Promise<T> => {
    usage.calls += 1;
    if (options.latency_ms > 0) await sleep(options.latency_ms);
    return ask();
  };
  const aggregated = (documents: number) => Math.max(1, Math.ceil(documents / AGGREGATED_PER_READ));
  return {
    get: path => {
      usage.reads += 1;
      return call(() => store.get(path));
    },
    query: async (collection, query) => {
      const found = await call(() => store.query(collection, query));
      usage.reads += Math.max(1, found.length);
      return found;
    },
    count: async (collection, where) => {
      const count = await call(() => store.count(collection, where));
      usage.reads += aggregated(count);
      return count;
    },
    sum: async (collection, fields) => {
      usage.reads += fields.length * aggregated(options.documentsIn(collection));
      return call(() => store.sum(collection, fields));
    },
    transaction: async work => {
      let [writes, deletes, bytes] = [0, 0, 0];
      const result = await store.transaction(async tx => {
        [writes, deletes, bytes] = [0, 0, 0];
        const write = (data: Document) => {
          writes += 1;
          bytes += JSON.stringify(data).length;
        };
        const outcome = await work({
          get: path => {
            usage.reads += 1;
            return call(() => tx.get(path));
          },
          create: (path, data) => {
            write(data);
            tx.create(path, data);
          },
          set: (path, data) => {
            write(data);
            tx.set(path, data);
          },
          delete: path => {
            deletes += 1;
            tx.delete(path);
          },
        });
        // The commit is a round trip.
        await call(async () => {});
        return outcome;
      });
      usage.transactions += 1;
      usage.writes += writes;
      usage.deletes += deletes;
      usage.most_writes = Math.max(usage.most_writes, writes + deletes);
      usage.most_bytes = Math.max(usage.most_bytes, bytes);
      return result;
    },
    close: () => store.close(),
  };
}

/** Documents that were read, written or deleted. */
export function documentsOf({reads, writes, deletes}: Usage): number {
  return reads + writes + deletes;
}

/** Adds the counts to `usage`, or subtracts them with a factor of -1. The largest commit is no sum. */
export function addTo(usage: Usage, counts: Usage, factor: 1 | -1 = 1): void {
  for (const key of ['reads', 'writes', 'deletes', 'calls', 'transactions'] as const)
    usage[key] += factor * counts[key];
  if (factor === -1) return;
  usage.most_writes = Math.max(usage.most_writes, counts.most_writes);
  usage.most_bytes = Math.max(usage.most_bytes, counts.most_bytes);
}
