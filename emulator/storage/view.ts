import {linkSync, lstatSync, mkdirSync, readdirSync, renameSync, rmdirSync, rmSync} from 'node:fs';
import {dirname, join, relative, sep} from 'node:path';

/**
 * View of the buckets for people: hard links `buckets/{bucket}/{name}` to the blobs. While the cloud runs, a file that a person removes is a
 * deleted object, and a file that a person puts in its place has the bytes of the object. A name that is not a safe path has no link.
 */
export class BucketView {
  readonly #root: string;
  /** Files of people that are no objects. */
  readonly #aside: string;
  /** Paths that could not be linked: no file there proves nothing. */
  readonly #unlinked = new Set<string>();

  constructor(dir: string) {
    this.#root = join(dir, 'buckets');
    this.#aside = join(dir, 'not-objects', new Date().toISOString());
    mkdirSync(this.#root, {recursive: true});
  }

  /** Path of an object in the view; undefined when its name is not a path inside the folder of the bucket. */
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
      this.#unlinked.delete(path);
    } catch {
      this.#unlinked.add(path);
      // `a` and `a/b` are two object names, but only one of them can be a file; the other object gets no link.
    }
  }

  /** True if a person removed the file of an object. */
  isRemoved(bucket: string, name: string): boolean {
    const path = this.path(bucket, name);
    return path !== undefined && !this.#unlinked.has(path) && inodeOf(path) === undefined;
  }

  /** The file with the bytes of an object: its blob, or what a person put in its place. */
  fileOf(bucket: string, name: string, blob: string): string {
    const path = this.path(bucket, name);
    if (path === undefined || this.#unlinked.has(path)) return blob;
    const found = inodeOf(path);
    return found === undefined || found === inodeOf(blob) ? blob : path;
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
      // The link is already gone, or the folder has other objects.
    }
  }

  /** Makes the view match the objects, after a crash or after a person changed it. Returns how many other files it moved to `not-objects`. */
  repair(objects: Iterable<{bucket: string; name: string; blob: string}>): number {
    const wanted = new Set<string>();
    for (const {bucket, name, blob} of objects) {
      const path = this.path(bucket, name);
      if (!path) continue;
      wanted.add(path);
      if (inodeOf(path) !== inodeOf(blob)) this.show(bucket, name, blob);
    }
    return this.#prune(this.#root, wanted);
  }

  #prune(folder: string, wanted: Set<string>): number {
    let moved = 0;
    for (const entry of readdirSync(folder, {withFileTypes: true})) {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) {
        moved += this.#prune(path, wanted);
        if (folder !== this.#root && readdirSync(path).length === 0) rmdirSync(path);
      } else if (!wanted.has(path)) {
        const to = join(this.#aside, relative(this.#root, path));
        mkdirSync(dirname(to), {recursive: true});
        renameSync(path, to);
        moved += 1;
      }
    }
    return moved;
  }
}

function inodeOf(path: string): bigint | undefined {
  try {
    return lstatSync(path, {bigint: true, throwIfNoEntry: false})?.ino;
  } catch {
    return undefined;
  }
}
