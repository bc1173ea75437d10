/** The bucket as pages read it: an object is fetched again when it has changed, and each operation is counted. */
import type {ObjectInfo, Objects} from '../shared/ports/ports.ts';
import type {Operation} from './allowance.ts';

const MOST_KEPT_BYTES = 64_000_000;

export function billedObjects(
  objects: Objects,
  spend: (operation: Operation, count: number) => void,
): Objects {
  const kept = new Map<string, {generation: string; bytes: Uint8Array}>();
  const head = (name: string): Promise<ObjectInfo | undefined> => {
    spend('class_b', 1);
    return objects.head(name);
  };
  const refuse = (): never => {
    throw new Error('A page reads objects and writes none');
  };
  return {
    bucket: objects.bucket,
    head,
    list: (prefix, options) => {
      spend('class_a', 1);
      return objects.list(prefix, options);
    },
    read: async (name, options) => {
      const info = await head(name);
      if (!info) return undefined;
      const known = kept.get(name);
      if (known?.generation === info.generation) return known.bytes;
      spend('class_b', 1);
      const bytes = await objects.read(name, options);
      kept.delete(name);
      if (bytes) kept.set(name, {generation: info.generation, bytes});
      let size = [...kept.values()].reduce((sum, each) => sum + each.bytes.length, 0);
      for (const [oldest, {bytes: old}] of kept) {
        if (size <= MOST_KEPT_BYTES) break;
        size -= old.length;
        kept.delete(oldest);
      }
      return bytes;
    },
    readRange: (...of) => {
      spend('class_b', 1);
      return objects.readRange(...of);
    },
    create: refuse,
    replace: refuse,
    move: refuse,
    delete: refuse,
  };
}
