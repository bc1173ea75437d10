/** A bucket in memory, as `shared/ports/ports.ts` promises it. */
import {Crc32c} from '../../emulator/storage/crc32c.ts';
import {ObjectTooLarge} from '../../shared/contracts/errors.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Now, ObjectInfo, Objects} from '../../shared/ports/ports.ts';
import type {Call} from './call.ts';

/** Bytes of a shard for each byte of its lines. */
const HEADER_SHARE = 16;

type Metadata = Record<string, string>;

/** Each method is one operation at one moment. `through` makes the port, whose calls take time and may fail. */
export class FakeBucket {
  readonly #objects = new Map<string, {info: ObjectInfo; bytes: Uint8Array}>();
  readonly #now: Now;
  /** Bytes that the bucket reports for each byte of content. */
  weight = 1;
  #generation = 1_700_000_000_000_000n;
  /** Called for each object that is made or replaced. */
  onFinalized: (info: ObjectInfo) => void = () => {};
  onDeleted: (name: string) => void = () => {};
  onMoved: (name: string) => void = () => {};

  constructor(now: Now) {
    this.#now = now;
  }

  /** Makes the object or replaces it, as `gcloud storage cp` does. `facts` replace those of the content. */
  put(
    name: string,
    content: string | Uint8Array,
    metadata: Metadata = {},
    facts: Partial<ObjectInfo> = {},
  ): ObjectInfo {
    const bytes = Buffer.from(content);
    this.#generation += 1n;
    const info = {
      name,
      generation: String(this.#generation),
      // The header of a final shard states its size.
      size_bytes: bytes.length * (metadata.final === 'true' ? 1 : this.#weightOf(name)),
      crc32c: crc32cOf(bytes),
      created_at: iso(this.#now()),
      metadata: {...metadata},
      ...facts,
    };
    this.#objects.set(name, {info, bytes});
    this.onFinalized(info);
    return info;
  }

  /** A shard of a test is mostly its header. */
  #weightOf(name: string): number {
    return name.startsWith('activations/') ? Math.max(1, this.weight / HEADER_SHARE) : this.weight;
  }

  info(name: string): ObjectInfo | undefined {
    return this.#objects.get(name)?.info;
  }

  text(name: string): string | undefined {
    const found = this.#objects.get(name);
    return found && Buffer.from(found.bytes).toString('utf8');
  }

  bytes(name: string): Uint8Array | undefined {
    return this.#objects.get(name)?.bytes;
  }

  names(prefix = '', start = ''): string[] {
    return [...this.#objects.keys()].filter(name => name.startsWith(prefix) && name >= start).sort();
  }

  list(prefix: string, {start, limit}: {start?: string; limit?: number} = {}): ObjectInfo[] {
    return this.names(prefix, start)
      .slice(0, limit)
      .flatMap(name => this.head(name) ?? []);
  }

  head(name: string): ObjectInfo | undefined {
    const info = this.info(name);
    return info && {...info, metadata: {...info.metadata}};
  }

  read(name: string, {max_bytes}: {max_bytes: number}): Uint8Array | undefined {
    const found = this.#objects.get(name);
    if (found && found.bytes.length > max_bytes)
      throw new ObjectTooLarge(
        `Failed to read ${name}: it has ${found.bytes.length} bytes and the most is ${max_bytes}`,
      );
    return found?.bytes;
  }

  create(name: string, bytes: Uint8Array, {metadata}: {metadata?: Metadata} = {}): 'created' | 'exists' {
    if (this.info(name)) return 'exists';
    this.put(name, bytes, metadata);
    return 'created';
  }

  replace(
    name: string,
    generation: string,
    bytes: Uint8Array,
    {metadata}: {metadata?: Metadata} = {},
  ): 'replaced' | 'changed' {
    if (this.info(name)?.generation !== generation) return 'changed';
    this.put(name, bytes, metadata);
    return 'replaced';
  }

  readRange(name: string, generation: string, begin: number, end: number): Uint8Array | undefined {
    const found = this.#objects.get(name);
    return found?.info.generation === generation ? found.bytes.subarray(begin, end) : undefined;
  }

  move(name: string, generation: string, to: string): void {
    const found = this.#objects.get(name);
    if (found?.info.generation !== generation) return;
    if (!this.info(to)) this.put(to, found.bytes, found.info.metadata);
    this.#objects.delete(name);
    this.onMoved(name);
  }

  delete(name: string): void {
    if (this.#objects.delete(name)) this.onDeleted(name);
  }

  through(call: Call): Objects {
    return {
      bucket: 'bucket',
      list: (...of) => call('list', () => this.list(...of)),
      head: name => call('head', () => this.head(name)),
      read: (...of) => call('read', () => this.read(...of)),
      create: (...of) => call('create', () => this.create(...of)),
      replace: (...of) => call('replace', () => this.replace(...of)),
      readRange: (...of) => call('readRange', () => this.readRange(...of)),
      move: (...of) => call('move', () => this.move(...of)),
      delete: name => call('delete', () => this.delete(name)),
    };
  }
}

function crc32cOf(bytes: Uint8Array): string {
  const crc = new Crc32c();
  crc.update(bytes);
  return crc.digest();
}
