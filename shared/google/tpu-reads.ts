/** Reads of the Cloud TPU API, which repeat after a passing error. */
import {setTimeout as sleep} from 'node:timers/promises';
import {isNotFound, isTransient, tpuError} from './errors.ts';

const READS = 4;

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
