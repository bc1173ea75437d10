/** The end of an output that an agent stores in parts. */
import type {Objects} from '../../shared/ports/ports.ts';
import {Lines} from '../text/output-parts.ts';

const MAX_PART_BYTES = 67_108_864;
/** Parts that are read: the newest. */
const MOST_PARTS = 2;

/** The last lines of the newest parts in a folder. */
export async function outputTail(objects: Objects, folder: string, most: number): Promise<string[]> {
  const parts = (await objects.list(folder)).filter(({name}) => name.endsWith('.txt'));
  const lines: string[] = [];
  const text = new Lines(line => void lines.push(line));
  for (const {name} of parts.slice(-MOST_PARTS)) {
    const bytes = await objects.read(name, {max_bytes: MAX_PART_BYTES}).catch(() => undefined);
    if (bytes) text.add(bytes);
  }
  text.end();
  return lines.slice(-most);
}
