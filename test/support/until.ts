import {setTimeout as sleep} from 'node:timers/promises';

/** Waits end with the fact that they wait for; a machine beside other work may take long. */
export const WAIT_S = 400;

/** Variables of a cloud that ends a silent worker early. A killed VM and a vanished node are silent. */
export const FAST = {GLEANER_LEASE_S: '8', GLEANER_SILENT_S: '12'};

/** Asks again until `done` holds; the error shows what was there last. */
export async function until<T>(
  what: string,
  ask: () => Promise<T>,
  done: (value: T) => boolean,
  seconds = WAIT_S,
): Promise<T> {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await ask().catch((error: Error) => error);
    if (!(value instanceof Error) && done(value)) return value;
    if (Date.now() > end)
      throw new Error(
        `${what} did not happen in ${seconds} s; last: ${value instanceof Error ? value.stack : JSON.stringify(value)}`,
      );
    await sleep(200);
  }
}
