import {linkSync, lstatSync, mkdirSync, readdirSync, rmdirSync, rmSync} from 'node:fs';
import {dirname, join, sep} from 'node:path';

/**
 * The buckets as a person would look at them: `buckets/{bucket}/{name}` are hard links to the blobs. Only for eyes:
 * nothing reads it back, and a name that is no safe path simply has no link.
 */
export class BucketView {
  readonly #root: string;

  constructor(dir: string) {
    this.#root = join(dir, 'buckets');
    mkdirSync(this.#root, {recursive: true});
  }

  /** Where the object would lie, or undefined when its name is no path inside the bucket's folder. */
  path(bucket: string, name: string): string | undefined {
    const segments = [bucket, ...name.split('/')];
    const isSafe = (segment: string) =>
      segment !== '' &&
      segment !== '.' &&
      segment !== '..' &&
      !segment.includes('\0') &&
      !segment.includes(sep) &&
      Buffer.byteLength(segment) <= 255;
    if (!segments.every(isSafe)) return undefined;
    const path = join(this.#root, ...segments);
    return Buffer.byteLength(path) < 4096 ? path : undefined;
  }

  show(bucket: string, name: string, blob: string): void {
    const path = this.path(bucket, name);
    if (!path) return;
    try {
      mkdirSync(dirname(path), {recursive: true});
      rmSync(path, {force: true});
      linkSync(blob, path);
    } catch {
      // `a` and `a/b` are both good object names and cannot both be files; then one of them is only in the bucket.
    }
  }

  hide(bucket: string, name: string): void {
    const path = this.path(bucket, name);
    if (!path) return;
    try {
      if (!lstatSync(path).isFile()) return;
      rmSync(path);
      for (let folder = dirname(path); folder !== join(this.#root, bucket); folder = dirname(folder))
        rmdirSync(folder);
    } catch {
      // Already away, or the folder holds other objects.
    }
  }

  /** Makes the view what the objects say, after a crash or a visitor's hand. */
  repair(objects: Iterable<{bucket: string; name: string; blob: string}>): void {
    const wanted = new Set<string>();
    for (const {bucket, name, blob} of objects) {
      const path = this.path(bucket, name);
      if (!path) continue;
      wanted.add(path);
      if (inodeOf(path) !== inodeOf(blob)) this.show(bucket, name, blob);
    }
    this.#prune(this.#root, wanted);
  }

  #prune(folder: string, wanted: Set<string>): void {
    for (const entry of readdirSync(folder, {withFileTypes: true})) {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) {
        this.#prune(path, wanted);
        if (folder !== this.#root && readdirSync(path).length === 0) rmdirSync(path);
      } else if (!wanted.has(path)) {
        rmSync(path, {force: true});
      }
    }
  }
}

function inodeOf(path: string): bigint | undefined {
  try {
    return lstatSync(path, {bigint: true, throwIfNoEntry: false})?.ino;
  } catch {
    return undefined;
  }
}
