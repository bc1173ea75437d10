/** Counts the operations of a Store as Firestore bills them, and delays each round trip. */
import {setTimeout as sleep} from 'node:timers/promises';
import type {CollectionPath, Store} from '../../shared/ports/ports.ts';

/**
 * Documents read, written and deleted, and transactions. A query reads at least one document. A count or a sum reads one for each
 * thousand. The reads of a transaction that runs again count again.
 */
export type Usage = Record<'reads' | 'writes' | 'deletes' | 'transactions', number>;

const AGGREGATED_PER_READ = 1000;

export function noUsage(): Usage {
  return {reads: 0, writes: 0, deletes: 0, transactions: 0};
}

export function metered(
  store: Store,
  usage: Usage,
  options: {
    latency_ms: number;
    documentsIn: (collection: CollectionPath) => number;
    sleep?: (ms: number) => Promise<unknown>;
  },
): Store {
  const call = async <T>(ask: () => Promise<T>): Promise<T> => {
    if (options.latency_ms > 0) await (options.sleep ?? sleep)(options.latency_ms);
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
      let [writes, deletes] = [0, 0];
      const result = await store.transaction(async tx => {
        [writes, deletes] = [0, 0];
        const outcome = await work({
          get: path => {
            usage.reads += 1;
            return call(() => tx.get(path));
          },
          create: (path, data) => {
            writes += 1;
            tx.create(path, data);
          },
          set: (path, data) => {
            writes += 1;
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
      addTo(usage, {reads: 0, writes, deletes, transactions: 1});
      return result;
    },
    close: () => store.close(),
  };
}

/** Documents that were read, written or deleted. */
export function documentsOf({reads, writes, deletes}: Usage): number {
  return reads + writes + deletes;
}

/** Adds counts times a factor to `usage`, and returns it. */
export function addTo(usage: Usage, counts: Usage, factor = 1): Usage {
  for (const key of ['reads', 'writes', 'deletes', 'transactions'] as const)
    usage[key] += factor * counts[key];
  return usage;
}
