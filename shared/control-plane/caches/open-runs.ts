/** The open runs as the ticks of this instance see them: a tick reads only the runs that changed since the last tick. */

import type {Run} from '../../domain/records/run.ts';
import {COMMIT_S} from '../../domain/run/marks.ts';
import {iso} from '../../domain/time.ts';
import type {Filter, Now, Store, Stored} from '../../ports/ports.ts';
import type {Log} from '../calls/log.ts';
import {leftAlone, runRecords} from '../documents/documents.ts';

export type OpenRuns = {
  stored: ReadonlyMap<string, Stored>;
  /** Start of the last read, and of the last read of all open runs. */
  read_ms: number;
  whole_ms: number;
  /** The last count that this instance stored in the document of each run: when it began, and the document's `updated_at` since. */
  counts: Map<string, {counted_ms: number; updated_at: string}>;
  /** Slots with a bound stream, by run: see `countStreams`. */
  slots: Map<string, {of: string; slots: readonly string[]}>;
};

export function newOpenRuns(): OpenRuns {
  const never = Number.NEGATIVE_INFINITY;
  return {stored: new Map(), read_ms: never, whole_ms: never, counts: new Map(), slots: new Map()};
}

type Reader = {store: Store; now: Now; log: Log; openRuns: OpenRuns};

/** Seconds after which a tick reads all open runs again: a person may have edited a document. */
const WHOLE_S = 900;

const OPEN_STATUSES = ['active', 'paused'];
const OPEN: Filter = {field: 'status', op: 'in', value: OPEN_STATUSES};

export async function readOpenRuns(deps: Reader): Promise<{runs: Run[]; unreadable: Set<string>}> {
  const unreadable = new Set<string>();
  const runs = runRecords.parseAll(await readStored(deps), (error, name) => {
    unreadable.add(name);
    leftAlone(deps.log)(error);
  });
  return {runs, unreadable};
}

/** A count detects runs that were deleted, or that were opened and ended unnoticed. */
async function readStored({store, now, openRuns}: Reader): Promise<Stored[]> {
  const read_ms = now();
  const isRecent = read_ms - openRuns.whole_ms < WHOLE_S * 1000;
  const followed = isRecent ? await changedSince(store, openRuns) : undefined;
  const whole = followed ? [] : await store.query('runs', {where: [OPEN]});
  openRuns.stored = followed ?? new Map(whole.map(each => [each.id, each]));
  openRuns.read_ms = read_ms;
  if (!followed) openRuns.whole_ms = read_ms;
  for (const known of [openRuns.counts, openRuns.slots])
    for (const run of known.keys()) if (!openRuns.stored.has(run)) known.delete(run);
  return [...openRuns.stored.values()].sort((one, other) => (one.id < other.id ? -1 : 1));
}

/** The known runs with the changes since the last read; undefined if their number differs from that of the open runs. */
async function changedSince(store: Store, {stored, read_ms}: OpenRuns) {
  const since: Filter = {field: 'updated_at', op: '>', value: iso(read_ms - COMMIT_S * 1000)};
  const [changed, open] = await Promise.all([
    store.query('runs', {where: [since]}),
    store.count('runs', [OPEN]),
  ]);
  const runs = new Map(stored);
  for (const each of changed)
    if (OPEN_STATUSES.includes(String(each.data.status))) runs.set(each.id, each);
    else runs.delete(each.id);
  return runs.size === open ? runs : undefined;
}
