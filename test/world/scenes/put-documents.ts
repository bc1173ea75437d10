/** Documents of a test, written as they are. */
import {openSqliteStore} from '../../../shared/embedded/sqlite-store.ts';
import type {Document, Store} from '../../../shared/ports/ports.ts';
import {T0} from '../builders.ts';

export async function putDocuments(store: Store, documents: Record<string, object>): Promise<void> {
  await store.transaction(async tx => {
    for (const [path, data] of Object.entries(documents)) tx.set(path, data as Document);
  });
}

/** A store in memory with these documents. */
export async function aStore(documents: Record<string, object>): Promise<Store> {
  const store = openSqliteStore(':memory:', () => T0);
  await putDocuments(store, documents);
  return store;
}

/** Writes documents into the store of a local cloud. */
export async function putInCloud(
  {store_file}: {store_file: string},
  documents: Record<string, object>,
): Promise<void> {
  const store = openSqliteStore(store_file);
  await putDocuments(store, documents);
  await store.close();
}
