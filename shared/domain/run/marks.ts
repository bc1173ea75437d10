/**
 * Dirty flags of runs. Whoever changes a stream first sets `changed_at` of its run. A tick counts only the streams of flagged runs; the
 * counts of other runs are up to date.
 */
import {isOlderThan, iso} from '../time.ts';

/** Seconds for which one flag covers all changes: many workers change streams of one run, and a document takes one write a second. */
export const MARK_S = 10;

/** Longest time between the time in a document and its commit: a Firestore transaction lasts at most 270 s, and clocks differ. */
export const COMMIT_S = 300;

/** Longest time from a flag to the start of a transaction that relies on it, which must end within `MARK_S` and `COMMIT_S` of the flag. */
export const RELY_S = 20;

const SKEW_S = 20;

type Marked = {changed_at: string | null; updated_at: string};

export function isFresh(changed_at: string | null, now: number): boolean {
  return changed_at !== null && !isOlderThan(changed_at, MARK_S, now);
}

export function withMark<R extends Marked>(run: R, now: number): R {
  return {...run, changed_at: iso(now), updated_at: iso(now)};
}

/** True if a count that began at `counted_ms` has every change that relied on the flag, except for slow commits. */
export function isCountedSince({changed_at}: Marked, counted_ms: number): boolean {
  return isOlderThan(changed_at, MARK_S + SKEW_S, counted_ms);
}

/**
 * The flag after a count that began at `counted_ms`. Only if the flag is old have all changes that relied on it been committed before the
 * count; a younger flag stays, and the next tick counts again.
 */
export function markAfterCount({changed_at}: Marked, counted_ms: number): string | null {
  return isOlderThan(changed_at, MARK_S + COMMIT_S, counted_ms) ? null : changed_at;
}
