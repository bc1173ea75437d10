import {CliError} from '../../client/text/errors.ts';
import type {Clock} from '../deploy/until-ready.ts';

const LOOK_S = 2;

/** `look` may change both: `cure` ends the error, and the time counts from the last change of `facts`. */
export type Limit = {limit_s: number; cure: string; look_s?: number; facts?: string};

/** Waits for an answer of `look`. Throws `CliError` after the limit. */
export async function waitFor<T>(
  {clock}: {clock: Clock},
  what: string,
  limit: Limit,
  look: () => Promise<T | undefined>,
): Promise<T> {
  let [since_ms, facts] = [clock.now(), limit.facts];
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    if (limit.facts !== facts) [since_ms, facts] = [clock.now(), limit.facts];
    if (clock.now() - since_ms > limit.limit_s * 1000)
      throw new CliError(`No ${what} after ${limit.limit_s} s: ${limit.cure}`);
    await clock.sleep(limit.look_s ?? LOOK_S);
  }
}
