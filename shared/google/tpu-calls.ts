/** Calls of both providers of TPUs: reads are repeated after a transient error, and a delete is safe to repeat. */
import {setTimeout as sleep} from 'node:timers/promises';
import {isNotFound, isTransient, tpuError} from './errors.ts';
import type {NodeSettings} from './tpu-resources.ts';

const READS = 4;
export const CALL = {timeout: 20_000, maxRetries: 0};
/** The answer to a create does not show a stock-out; its operation does, often within a second. */
export const FAILS_FAST_MS = [300, 700, 1000];

/** `endpoint`: address that replaces Google's. `token` authorises calls to it. */
export type DriverOptions = {
  project: string;
  endpoint?: string | undefined;
  token?: string | undefined;
} & NodeSettings;

type Page = {nextPageToken?: string | null; unreachable?: string[] | null} | null | undefined;

/** Reads every page of a list over all zones. Adds the zones without an answer to `unreachable`. */
export async function readAll<T>(
  what: string,
  unreachable: Set<string>,
  read: (pageToken: string) => Promise<{items: T[]; page: Page}>,
): Promise<T[]> {
  const resources: T[] = [];
  let pageToken = '';
  do {
    const {items, page} = await repeating(what, 'all zones', () => read(pageToken));
    resources.push(...items);
    for (const place of page?.unreachable ?? []) unreachable.add(place.split('/').at(-1) ?? place);
    pageToken = page?.nextPageToken ?? '';
  } while (pageToken);
  return resources;
}

/** Reads a resource; the list is empty if Cloud TPU answers that the resource does not exist. */
export async function readOne<T>(
  what: string,
  zone: string,
  read: () => Promise<[T, ...unknown[]]>,
): Promise<T[]> {
  return repeating(what, zone, async () => {
    try {
      const [first] = await read();
      return [first];
    } catch (error) {
      if (isNotFound(error)) return [];
      throw error;
    }
  });
}

async function repeating<T>(what: string, zone: string, read: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++)
    try {
      return await read();
    } catch (error) {
      if (!isTransient(error) || attempt === READS) throw tpuError(what, zone, error);
      await sleep(200 * 2 ** attempt);
    }
}

export async function deleted(
  name: string,
  zone: string,
  {ask, isGoing}: {ask: () => Promise<unknown>; isGoing: () => Promise<boolean>},
): Promise<'started' | 'absent'> {
  try {
    await ask();
    return 'started';
  } catch (error) {
    if (isNotFound(error)) return 'absent';
    if (await isGoing()) return 'started';
    throw tpuError(`delete ${name}`, zone, error);
  }
}
