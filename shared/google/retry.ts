/** Calls that are safe to repeat: bounded exponential back-off with jitter, and a limit for a call that gets no answer. */
import {setTimeout as sleep} from 'node:timers/promises';
import {isRetryable, reasonOf} from './errors.ts';

export type RetryPolicy = {
  attempts: number;
  /** Longest wait after the first attempt. Each further wait may be twice as long. */
  first_wait_ms: number;
  longest_wait_ms: number;
  /** An attempt without an answer, or without another byte of it, for this long has failed. */
  silence_ms: number;
  /** No attempt starts later than this after the first one, or after the latest attempt with progress. */
  give_up_ms: number;
  /** Limit of a read of an object, with all its requests. */
  read_ms: number;
};

/** A request that gets no bytes fails within 45 s, and every read ends within 50 s, because most functions have 60 s. */
export const STORAGE_RETRIES: RetryPolicy = {
  attempts: 5,
  first_wait_ms: 500,
  longest_wait_ms: 8_000,
  silence_ms: 15_000,
  give_up_ms: 30_000,
  read_ms: 50_000,
};

/** An answer that is late, incomplete or damaged. */
export class BrokenAnswer extends Error {
  override name = 'BrokenAnswer';
  readonly code = 503;
}

/**
 * Repeats the call after transient errors. Throws any other error at once, and the last error after the last attempt. The count of attempts
 * and the time start again after an attempt that raised `progress`.
 */
export async function withRetries<T>(
  policy: Pick<RetryPolicy, 'attempts' | 'first_wait_ms' | 'longest_wait_ms' | 'give_up_ms'>,
  call: () => Promise<T>,
  progress: () => number = () => 0,
): Promise<T> {
  const begun_ms = performance.now();
  let counted_from_ms = begun_ms;
  let furthest = 0;
  let attempts = 0;
  for (let attempt = 1; ; attempt++) {
    attempts++;
    try {
      return await call();
    } catch (error) {
      if (!isRetryable(error)) throw error;
      const now_ms = performance.now();
      if (progress() > furthest) {
        furthest = progress();
        attempt = 1;
        counted_from_ms = now_ms;
      }
      const wait_ms = waitAfter(attempt, policy, Math.random());
      if (attempt >= policy.attempts || now_ms - counted_from_ms + wait_ms > policy.give_up_ms)
        throw lastError(error, attempts, now_ms - begun_ms);
      await sleep(wait_ms);
    }
  }
}

/** `random` is at least 0 and below 1. Half of the wait is fixed, so that a retry never follows at once. */
export function waitAfter(
  attempt: number,
  policy: Pick<RetryPolicy, 'first_wait_ms' | 'longest_wait_ms'>,
  random: number,
): number {
  const longest_ms = Math.min(policy.first_wait_ms * 2 ** (attempt - 1), policy.longest_wait_ms);
  return (longest_ms * (1 + random)) / 2;
}

/** Rejects if the call has no result after `limit_ms`. The call itself continues. */
export async function within<T>(limit_ms: number, call: Promise<T>, reason = 'no answer came'): Promise<T> {
  const late = Promise.withResolvers<never>();
  const error = () => new BrokenAnswer(`${reason} within ${limit_ms / 1000} s`);
  const timer = setTimeout(() => late.reject(error()), limit_ms);
  try {
    return await Promise.race([call, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

function lastError(error: unknown, attempts: number, passed_ms: number): Error {
  const message = `${reasonOf(error)}, after ${attempts} attempts in ${(passed_ms / 1000).toFixed(1)} s`;
  return Object.assign(new Error(message, {cause: error}), {code: (error as {code?: unknown}).code});
}
