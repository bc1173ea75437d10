/** The TTL of Firestore for the stores of a local cloud. Google deletes within a day; a sweep of every document takes less. */
import {iso} from '../shared/domain/time.ts';
import {openSqliteStore} from '../shared/embedded/sqlite-store.ts';

const SWEEP_MS = 60_000;
/** Keeps each sweep short; a day has enough sweeps for millions of documents. */
const MOST_DOCUMENTS = 2000;

/** Sweeps each store every minute, until the returned function is called. */
export function startExpiry(
  files: readonly string[],
  jobs_collection: string,
  trouble: (error: unknown, where: string) => void,
): () => Promise<void> {
  const stores = files.map(file => openSqliteStore(file));
  const sweep = async () => {
    for (const store of stores) await store.sweepExpired(jobs_collection, iso(Date.now()), MOST_DOCUMENTS);
  };
  const timer = setInterval(() => {
    sweep().catch(error => trouble(error, 'expired documents'));
  }, SWEEP_MS);
  timer.unref();
  return async () => {
    clearInterval(timer);
    for (const store of stores) await store.close();
  };
}
