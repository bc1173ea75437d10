/** Reads of the Cloud TPU API, which repeat after a passing error. */
import {setTimeout as sleep} from 'node:timers/promises';
import {isNotFound, isTransient, tpuError} from './errors.ts';

const READS = 4;

type Page = {nextPageToken?: string | null; unreachable?: string[] | null} | null | undefined;

/** Every page of a list over all zones; adds to `unreachable` those that gave no answer. */
export async function readAll<T>(
  what: string,
  unreachable: Set<string>,
  read: (pageToken: string) => Promise<{items: T[]; page: Page}>,
): Promise<T[]> {
  const found: T[] = [];
  let pageToken = '';
  do {
    const {items, page} = await repeating(what, 'all zones', () => read(pageToken));
    found.push(...items);
    for (const place of page?.unreachable ?? []) unreachable.add(place.split('/').at(-1) ?? place);
    pageToken = page?.nextPageToken ?? '';
  } while (pageToken);
  return found;
}

/** The resource, or nothing when Cloud TPU answers that there is none. */
export async function readOne<T>(
  what: string,
  zone: string,
  read: () => Promise<[T, ...unknown[]]>,
): Promise<T[]> {
  return repeating(what, zone, async () => {
    try {
      const [found] = await read();
      return [found];
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
