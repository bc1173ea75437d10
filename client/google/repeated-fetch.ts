/** Requests by `fetch` that are safe to repeat. */
import {BrokenAnswer, type RetryPolicy, withRetries} from '../../shared/google/retry.ts';
import {CliError} from '../text/errors.ts';

/** Repeats a request that breaks, or that takes longer than the limit. A stopped request is not repeated. */
export function repeatedFetch<T>(
  retries: RetryPolicy,
  limit_ms: number,
  stop: AbortSignal | undefined,
  request: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  return withRetries(retries, async () => {
    const late = AbortSignal.timeout(limit_ms);
    try {
      return await request(stop ? AbortSignal.any([stop, late]) : late);
    } catch (error) {
      throw stop?.aborted ? error : unreached(error as Error);
    }
  });
}

/** `fetch` hides the reason of a broken connection behind its own error. An answer with a status stays as it is. */
function unreached(error: Error): Error {
  const {code} = error as {code?: unknown};
  if (error instanceof CliError || error instanceof BrokenAnswer) return error;
  if (typeof code === 'number' && error.name === 'Error') return error;
  const cause = (error.cause ?? error) as NodeJS.ErrnoException;
  return Object.assign(new Error(cause.message || String(cause.code), {cause: error}), {code: 503});
}
