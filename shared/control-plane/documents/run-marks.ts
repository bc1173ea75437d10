/** Sets the dirty flag of the run of every stream that a transaction changes, before the transaction is committed. */

import {isOpen} from '../../domain/records/run.ts';
import {isFresh, MARK_S, RELY_S, withMark} from '../../domain/run/marks.ts';
import type {Now, Store, Transaction} from '../../ports/ports.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Log} from '../calls/log.ts';
import {runRecords, skipIfInvalid} from './documents.ts';
import {watchWrites, withTransactions} from './watched-store.ts';

export type RunMarks = Map<string, number>;

type Marking = {store: Store; runMarks: RunMarks; now: Now; log: Log};

const STREAM = /^runs\/([^/]+)\/streams\/[^/]+$/;
const MOST_KNOWN = 10_000;

/** Thrown before anything is written, because a run has no fresh dirty flag. */
class Unmarked extends Error {}

/**
 * The Store whose transactions change only streams of flagged runs. A transaction that finds a run without a fresh flag writes nothing, flags
 * the run, and runs again. The flag is committed before the change, so no crash between them can lose it.
 */
export function withRunMarks(deps: Marking): Store {
  const {store, runMarks, now} = deps;
  const isMarked = (run: string) => now() - (runMarks.get(run) ?? Number.NEGATIVE_INFINITY) < MARK_S * 1000;
  const transaction = async <T>(work: (tx: Transaction) => Promise<T>): Promise<T> => {
    for (const marks = new Map<string, number>(); ; ) {
      const missing = new Set<string>();
      try {
        return await store.transaction(async inner => {
          missing.clear();
          const oldest_ms = now() - RELY_S * 1000;
          const noted = (path: string) => {
            const run = STREAM.exec(path)?.[1];
            const hasMark = run === undefined || isMarked(run) || (marks.get(run) ?? 0) > oldest_ms;
            if (!hasMark) missing.add(run);
          };
          const result = await work(watchWrites(inner, noted));
          if (missing.size > 0) throw new Unmarked();
          return result;
        });
      } catch (error) {
        if (!(error instanceof Unmarked)) throw error;
      }
      await forEachConcurrently([...missing], async run => void marks.set(run, await markRun(deps, run)));
    }
  };
  return withTransactions(store, transaction);
}

/**
 * Flags an open run, unless another instance has just done so. Returns the time of the flag. An ended run is flagged when it opens again. An
 * invalid document gets no flag and needs none.
 */
async function markRun({store, runMarks, now, log}: Marking, run: string): Promise<number> {
  const marked_ms = await skipIfInvalid(log, () =>
    store.transaction(async tx => {
      const current = await runRecords.get(tx, run);
      const at = now();
      if (!current || !isOpen(current)) return at;
      if (isFresh(current.changed_at, at)) return Date.parse(current.changed_at ?? '');
      runRecords.set(tx, withMark(current, at));
      return at;
    }),
  );
  if (runMarks.size >= MOST_KNOWN) runMarks.clear();
  if (marked_ms !== undefined) runMarks.set(run, marked_ms);
  return marked_ms ?? Number.POSITIVE_INFINITY;
}
