/** Stores and transactions that pass everything on and do one more thing. */
import type {Document, Store, Transaction} from '../../ports/ports.ts';

/** The transaction that calls `onWrite` before each of its writes. A delete has no data. */
export function watchWrites(tx: Transaction, onWrite: (path: string, data?: Document) => void): Transaction {
  return {
    get: path => tx.get(path),
    create: (path, data) => {
      onWrite(path, data);
      tx.create(path, data);
    },
    set: (path, data) => {
      onWrite(path, data);
      tx.set(path, data);
    },
    delete: path => {
      onWrite(path);
      tx.delete(path);
    },
  };
}

export function withTransactions(store: Store, transaction: Store['transaction']): Store {
  return {
    get: path => store.get(path),
    query: (collection, query) => store.query(collection, query),
    count: (collection, where) => store.count(collection, where),
    sum: (collection, fields) => store.sum(collection, fields),
    close: () => store.close(),
    transaction,
  };
}
