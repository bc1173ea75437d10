/**
 * Marks of runs. A change of a stream marks its run first: `changed_at`. A tick counts the streams of marked runs alone. The counts of a run
 * without a mark are those of its streams.
 */
import {isOlderThan, iso} from '../time.ts';

/** Seconds for which a mark stands for every change: many workers change streams of one run, and one document takes one write a second. */
export const MARK_S = 10;

/** Longest time between the time in a document and its commit: a transaction of Firestore lasts at most 270 s, and clocks differ. */
export const COMMIT_S = 300;

/** Longest time from a mark to the begin of a transaction that relies on it: a transaction must end within `MARK_S` and `COMMIT_S` of the mark. */
export const RELY_S = 20;

const SKEW_S = 20;

type Marked = {changed_at: string | null; updated_at: string};

export function isFresh(changed_at: string | null, now: number): boolean {
  return changed_at !== null && !isOlderThan(changed_at, MARK_S, now);
}

export function withMark<R extends Marked>(run: R, now: number): R {
  return {...run, changed_at: iso(now), updated_at: iso(now)};
}

/** True if a count that began at `counted_ms` has every change that relied on the mark, slow commits excepted. */
export function isCountedSince({changed_at}: Marked, counted_ms: number): boolean {
  return isOlderThan(changed_at, MARK_S + SKEW_S, counted_ms);
}

/**
 * The mark after a count that began at `counted_ms`. A change that relied on the mark has been committed before the count only if the mark
 * is old: a younger mark stays, and the next tick counts again.
 */
export function markAfterCount({changed_at}: Marked, counted_ms: number): string | null {
  return isOlderThan(changed_at, MARK_S + COMMIT_S, counted_ms) ? null : changed_at;
}
