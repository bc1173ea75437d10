/** The rules of the Store around a store in memory, which enforces none. */
import {Attempt} from '../../shared/ports/checked-transaction.ts';
import {splitDocumentPath} from '../../shared/ports/document-limits.ts';
import type {Document, Store, Value} from '../../shared/ports/ports.ts';
import {checkQuery, checkSum} from '../../shared/ports/query-limits.ts';

/** Readers share a document, which is frozen: a change of it throws. */
export function checkedStore(store: Store): Store {
  return {
    get: async path => {
      splitDocumentPath(path);
      return store.get(path);
    },
    query: async (collection, query = {}) => {
      checkQuery(collection, query);
      return store.query(collection, query);
    },
    count: async (collection, where = []) => {
      checkQuery(collection, {where});
      return store.count(collection, where);
    },
    sum: async (collection, fields) => {
      checkSum(collection, fields);
      return store.sum(collection, fields);
    },
    transaction: work =>
      store.transaction(tx => {
        const attempt = new Attempt(
          path => tx.get(path),
          write => {
            if (write.kind === 'delete') tx.delete(write.path);
            else tx[write.kind](write.path, frozen(JSON.parse(JSON.stringify(write.data))));
          },
        );
        return attempt.run(work);
      }),
    close: () => store.close(),
  };
}

function frozen<T extends Document | Value>(value: T): T {
  if (typeof value === 'object' && value !== null)
    for (const part of Object.values(Object.freeze(value))) frozen(part);
  return value;
}
