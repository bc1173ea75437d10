import type {Config} from './contracts/settings/config.ts';
import {openSqliteStore} from './embedded/sqlite-store.ts';
import {openFirestoreStore} from './google/firestore-store.ts';
import type {Store} from './ports/ports.ts';

/** Chooses the adapter of the store. Commands import this file alone, and so load no other adapter. */
export function openStore({store, project}: Pick<Config, 'store' | 'project'>): Store {
  const [, kind, where] = /^(sqlite|firestore)(?::(.+))?$/.exec(store) ?? [];
  if (kind === 'sqlite' && where) return openSqliteStore(where);
  return openFirestoreStore({project, ...(where ? {database: where} : {})});
}
