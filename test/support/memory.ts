/** The bucket and Cloud TPU in memory: what `shared/ports.ts` promises and no more. */
import {crc32} from 'node:zlib';
import {ObjectTooLarge, TpuError} from '../../shared/contracts/errors.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Now, ObjectInfo, Objects, Tpu, TpuRequest, Tpus} from '../../shared/ports.ts';

type StoredObject = {info: ObjectInfo; bytes: Uint8Array};

/** One bucket. `onFinalized` hears of every object that is made or replaced, as a function would. */
export class MemoryObjects implements Objects {
  readonly bucket = 'bucket';
  readonly #objects = new Map<string, StoredObject>();
  readonly #now: Now;
  readonly #onFinalized: (info: ObjectInfo) => void;
  #generation = 1_700_000_000_000_000n;

  constructor(now: Now, onFinalized: (info: ObjectInfo) => void) {
    this.#now = now;
    this.#onFinalized = onFinalized;
  }

  /** What a person does with `gcloud storage cp`: makes the object or replaces it. */
  put(name: string, content: string | Uint8Array, metadata: Record<string, string> = {}): ObjectInfo {
    const bytes = Buffer.from(content);
    this.#generation += 1n;
    const info = {
      name,
      generation: String(this.#generation),
      size_bytes: bytes.length,
      // Not CRC-32C, and nobody here can tell: equal content has equal sums, and other content has others.
      crc32c: crc32(bytes).toString(36),
      created_at: iso(this.#now()),
      metadata: {...metadata},
    };
    this.#objects.set(name, {info, bytes});
    this.#onFinalized(info);
    return structuredClone(info);
  }

  text(name: string): string {
    const found = this.#objects.get(name);
    if (!found) throw new Error(`There is no object ${name}`);
    return Buffer.from(found.bytes).toString('utf8');
  }

  names(prefix = ''): string[] {
    return [...this.#objects.keys()].filter(name => name.startsWith(prefix)).sort();
  }

  async list(
    prefix: string,
    {start = '', limit}: {start?: string; limit?: number} = {},
  ): Promise<ObjectInfo[]> {
    const names = this.names(prefix)
      .filter(name => name >= start)
      .slice(0, limit);
    return structuredClone(names.flatMap(name => this.#objects.get(name)?.info ?? []));
  }

  async head(name: string): Promise<ObjectInfo | undefined> {
    return structuredClone(this.#objects.get(name)?.info);
  }

  async read(name: string, {max_bytes}: {max_bytes: number}): Promise<Uint8Array | undefined> {
    const found = this.#objects.get(name);
    if (found && found.bytes.length > max_bytes)
      throw new ObjectTooLarge(
        `Failed to read ${name}: it has ${found.bytes.length} bytes and the most is ${max_bytes}`,
      );
    return found?.bytes;
  }

  async create(
    name: string,
    bytes: Uint8Array,
    options: {metadata?: Record<string, string>} = {},
  ): Promise<'created' | 'exists'> {
    if (this.#objects.has(name)) return 'exists';
    this.put(name, bytes, options.metadata);
    return 'created';
  }

  async replace(
    name: string,
    generation: string,
    bytes: Uint8Array,
    options: {metadata?: Record<string, string>} = {},
  ): Promise<'replaced' | 'changed'> {
    if (this.#objects.get(name)?.info.generation !== generation) return 'changed';
    this.put(name, bytes, options.metadata);
    return 'replaced';
  }

  async delete(name: string): Promise<void> {
    this.#objects.delete(name);
  }
}

export type MemoryNode = Tpu & {metadata: Record<string, string>; queue?: TpuRequest['queue']};

/** Cloud TPU, which does nothing by itself: `settle` lets what was asked for come true. */
export class MemoryTpus implements Tpus {
  readonly nodes = new Map<string, MemoryNode>();
  /** Every node that was ever made, as `name#incarnation`, in order. */
  readonly made: string[] = [];
  /** Zones that have nothing to give, and zones that do not answer. */
  readonly soldOut = new Set<string>();
  readonly unreachable = new Set<string>();
  /** Zones whose nodes lists leave out, though the zones answer. */
  readonly omitted = new Set<string>();
  readonly #now: Now;

  constructor(now: Now) {
    this.#now = now;
  }

  async list(): Promise<{tpus: Tpu[]; unreachable: string[]}> {
    const tpus = [...this.nodes.values()].filter(
      ({zone}) => !this.unreachable.has(zone) && !this.omitted.has(zone),
    );
    return structuredClone({tpus, unreachable: [...this.unreachable]});
  }

  async get(name: string, zone: string): Promise<Tpu | undefined> {
    this.#reach(zone, `get ${name}`);
    const node = this.nodes.get(name);
    return node?.zone === zone ? structuredClone(node) : undefined;
  }

  async create({name, zone, labels, metadata, queue}: TpuRequest): Promise<'started' | 'exists'> {
    this.#reach(zone, `create ${name}`);
    if (this.nodes.has(name)) return 'exists';
    if (this.soldOut.has(zone) && !queue) throw new TpuError('no-capacity', zone, `no capacity in ${zone}`);
    const created_at = iso(this.#now());
    const {valid_until_at = null} = queue ?? {};
    const waiting = {state: 'WAITING_FOR_RESOURCES', initiator: 'USER', error: null, valid_until_at, labels};
    const queued = queue && waiting;
    const state = queue ? null : 'CREATING';
    this.nodes.set(name, {
      ...{name, zone, state, health: 'HEALTHY', labels, symptoms: [], queued, metadata, queue, created_at},
    });
    this.made.push(`${name}#${metadata['gleaner-incarnation']}`);
    return 'started';
  }

  async delete(name: string, zone: string): Promise<'started' | 'absent'> {
    this.#reach(zone, `delete ${name}`);
    const node = this.nodes.get(name);
    if (node?.zone !== zone) return 'absent';
    if (node.queued) node.queued.state = 'DELETING';
    else node.state = 'DELETING';
    return 'started';
  }

  #reach(zone: string, what: string): void {
    if (this.unreachable.has(zone))
      throw new TpuError('transient', zone, `Failed to ${what}: ${zone} is away`);
  }

  /** Nodes that are being made become READY, those in the queue where there is room, and those that are being deleted go. */
  settle(): void {
    for (const {name, zone, state, queued} of [...this.nodes.values()]) {
      const node = this.node(name);
      if (state === 'CREATING') node.state = 'READY';
      if (queued?.state === 'WAITING_FOR_RESOURCES' && !this.soldOut.has(zone)) {
        node.state = 'READY';
        queued.state = 'ACTIVE';
      }
      if (state === 'DELETING' || queued?.state === 'DELETING') this.nodes.delete(name);
    }
  }

  node(name: string): MemoryNode {
    const node = this.nodes.get(name);
    if (!node) throw new Error(`There is no node ${name}`);
    return node;
  }

  states(): Record<string, string> {
    return Object.fromEntries(
      [...this.nodes.values()].map(({name, state, queued}) => [name, state ?? `queue ${queued?.state}`]),
    );
  }
}
