import type {StreamStatus} from './stream.ts';
import {isOlderThan, iso} from './time.ts';

/** `paused` and `cancelled` are people's words; the others follow from the streams. */
export type RunStatus = 'active' | 'paused' | 'completed' | 'failed' | 'cancelled';

/** Only what a worker needs to know is in `spec`; it is frozen, with its hash, when the first stream is accepted. */
export type Run<Spec = {[key: string]: unknown}> = {
  run: string;
  status: RunStatus;
  reason: string | null;
  spec: Spec | null;
  spec_hash: string | null;
  pool: string;
  priority: number;
  /** Which TPUs of the pool may work on which stream: see pool.ts. */
  affinity: 'any' | 'fixed';
  stream_offset: number;
  /** Dollars that its work may cost; null is no limit. */
  budget_usd: number | null;
  /** What the TPUs that have ended cost it, and what it has cost in all, as of the last tick. */
  spent_usd: number;
  cost_usd: number;
  /** Grows with every message that configured it. */
  version: number;
  /** Streams that a message cancelled and none has retried. */
  cancelled_streams: string[];
  stopped_at: string | null;
  /** When this document was made of a manifest that was there before it: then the Store was lost. */
  rebuilt_at: string | null;
  streams_pending: number;
  streams_in_progress: number;
  streams_completed: number;
  streams_failed: number;
  total_samples_processed: number;
  rejected_samples: number;
  total_tokens: number;
  total_shards: number;
  total_bytes: number;
  created_at: string;
  updated_at: string;
};

/** The totals of a run before its first stream. */
export const NO_STREAMS = {
  streams_pending: 0,
  streams_in_progress: 0,
  streams_completed: 0,
  streams_failed: 0,
  total_samples_processed: 0,
  rejected_samples: 0,
  total_tokens: 0,
  total_shards: 0,
  total_bytes: 0,
};

/** What people have said of a run so far: nothing. */
export const NO_ORDERS = {version: 0, cancelled_streams: [], stopped_at: null, rebuilt_at: null};

export type StreamFacts = {
  stream: string;
  status: StreamStatus;
  last_error: string | null;
  total_samples_processed: number;
  rejected_samples: number;
  total_tokens: number;
  total_shards: number;
  total_bytes: number;
};

/**
 * A run that was just made again gives nothing out for the time of a lease, so that whoever works on it can say so first.
 */
export function isSettled({rebuilt_at}: Run, lease_s: number, now: number): boolean {
  return rebuilt_at === null || isOlderThan(rebuilt_at, lease_s, now);
}

/** Workers may be leased streams of this run. */
export function isRunnable(run: Run): boolean {
  return run.status === 'active' && run.spec !== null;
}

/** A run that may still want TPUs, now or after a `resume`. */
export function isOpen(run: Run): boolean {
  return run.status === 'active' || run.status === 'paused';
}

/**
 * Totals and status from the streams. A run with any failed stream and no other work left has failed, and its reason names
 * the first; a finished run becomes active again when a further stream is dropped. A pause or a stop stays what it is.
 */
export function summarizeRun(
  run: Run,
  streams: readonly StreamFacts[],
  cost_of_living_usd: number,
  now: number,
): Run {
  const count = (status: StreamStatus) => streams.filter(stream => stream.status === status).length;
  const sum = (field: Exclude<keyof StreamFacts, 'stream' | 'status' | 'last_error'>) =>
    streams.reduce((total, stream) => total + stream[field], 0);
  const failed = streams.find(stream => stream.status === 'failed');
  const next: Run = {
    ...run,
    streams_pending: count('pending'),
    streams_in_progress: count('in_progress'),
    streams_completed: count('completed'),
    streams_failed: count('failed'),
    total_samples_processed: sum('total_samples_processed'),
    rejected_samples: sum('rejected_samples'),
    total_tokens: sum('total_tokens'),
    total_shards: sum('total_shards'),
    total_bytes: sum('total_bytes'),
    cost_usd: run.spent_usd + cost_of_living_usd,
  };
  if (run.status !== 'cancelled' && run.spec !== null && streams.length > 0) {
    const unfinished = next.streams_pending + next.streams_in_progress;
    if (unfinished > 0) next.status = run.status === 'paused' ? 'paused' : 'active';
    else next.status = failed ? 'failed' : 'completed';
    const isHeld = next.status === 'paused' && run.status === 'paused';
    if (failed) next.reason = `stream ${failed.stream}: ${failed.last_error ?? 'failed'}`;
    else if (!isHeld) next.reason = null;
  }
  const changed = (Object.keys(next) as (keyof Run)[]).some(field => next[field] !== run[field]);
  return changed ? {...next, updated_at: iso(now)} : run;
}
