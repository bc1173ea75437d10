import {setTimeout as sleep} from 'node:timers/promises';

/** Waits end with the fact that they wait for; a machine beside other work may take long. */
export const WAIT_S = 400;

const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [10, 200];

/** Asks again until `done` holds, by default until there is a value. `what` completes "Timed out before …"; the error shows the last value. */
export async function until<T>(
  what: string,
  ask: () => T | Promise<T>,
  done: (value: T) => boolean = Boolean,
  seconds = WAIT_S,
): Promise<NonNullable<T>> {
  const end_ms = performance.now() + seconds * 1000;
  for (let pause_ms = FIRST_PAUSE_MS; ; pause_ms = Math.min(LONGEST_PAUSE_MS, pause_ms * 1.5)) {
    let last: unknown;
    try {
      const value = await ask();
      if (done(value)) return value as NonNullable<T>;
      last = JSON.stringify(value);
    } catch (error) {
      last = (error as Error).stack;
    }
    if (performance.now() > end_ms) throw new Error(`Timed out before ${what}; after ${seconds} s: ${last}`);
    await sleep(pause_ms);
  }
}
