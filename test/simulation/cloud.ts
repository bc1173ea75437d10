/** The bucket, the topics and Cloud TPU in virtual time. What they promise is in `shared/ports.ts`; the rest can go wrong. */
import {crc32} from 'node:zlib';
import {iso} from '../../shared/core/time.ts';
import {TpuError} from '../../shared/errors.ts';
import type {ObjectInfo, Objects, Tpu, TpuRequest, Tpus} from '../../shared/ports.ts';
import type {Clockwork} from './kernel.ts';
import type {Setting} from './setting.ts';
import type {Call} from './store.ts';

export class SimObjects {
  readonly #objects = new Map<string, {info: ObjectInfo; bytes: Buffer}>();
  readonly #clockwork: Clockwork;
  #generation = 1_700_000_000_000_000n;
  onFinalized: (info: ObjectInfo) => void = () => {};

  constructor(clockwork: Clockwork) {
    this.#clockwork = clockwork;
  }

  put(name: string, content: string | Uint8Array, metadata: Record<string, string> = {}): ObjectInfo {
    const bytes = Buffer.from(content);
    this.#generation += 1n;
    const info = {
      name,
      generation: String(this.#generation),
      size_bytes: bytes.length,
      // Equal content has equal sums, and other content has others: all that anybody here asks of it.
      crc32c: crc32(bytes).toString(36),
      created_at: iso(this.#clockwork.now),
      metadata: {...metadata},
    };
    this.#objects.set(name, {info, bytes});
    this.onFinalized(info);
    return info;
  }

  info(name: string): ObjectInfo | undefined {
    return this.#objects.get(name)?.info;
  }

  text(name: string): string | undefined {
    return this.#objects.get(name)?.bytes.toString('utf8');
  }

  list(prefix: string, start = ''): ObjectInfo[] {
    const found = [...this.#objects.values()].filter(
      ({info}) => info.name.startsWith(prefix) && info.name >= start,
    );
    return found
      .map(({info}) => ({...info, metadata: {...info.metadata}}))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  through(call: Call): Objects {
    return {
      bucket: 'bucket',
      list: (prefix, {start} = {}) => call('list', () => this.list(prefix, start)),
      head: name =>
        call('head', () => {
          const info = this.info(name);
          return info && {...info, metadata: {...info.metadata}};
        }),
      read: name => call('read', () => this.#objects.get(name)?.bytes),
      create: (name, bytes, {metadata} = {}) =>
        call('create', () => {
          if (this.#objects.has(name)) return 'exists';
          this.put(name, bytes, metadata);
          return 'created';
        }),
      replace: (name, generation, bytes, {metadata} = {}) =>
        call('replace', () => {
          if (this.info(name)?.generation !== generation) return 'changed';
          this.put(name, bytes, metadata);
          return 'replaced';
        }),
      delete: name => call('delete', () => void this.#objects.delete(name)),
    };
  }
}

/** `before` is the state that it had until `changed_at`. */
export type SimNode = Tpu & {metadata: Record<string, string>; before: string; changed_at: number};

/** A list may be so much behind. */
const STALE_MS = 90_000;

/** What a zone does for a while: it gives nodes, has none, is over quota, or does not answer; `isDark`: until all is calm. */
export type Zone = {soldOut: boolean; overQuota: boolean; unreachable: boolean; isDark: boolean};

export class SimTpus {
  readonly nodes = new Map<string, SimNode>();
  readonly zones = new Map<string, Zone>();
  /** Every node that was made, as `name#incarnation`. */
  readonly made: string[] = [];
  readonly #setting: Setting;
  #lately: SimNode[] = [];
  onReady: (node: SimNode) => void = () => {};
  onGone: (node: SimNode) => void = () => {};

  constructor(setting: Setting) {
    this.#setting = setting;
  }

  zone(name: string): Zone {
    const zone = this.zones.get(name) ?? {
      soldOut: false,
      overQuota: false,
      unreachable: false,
      isDark: false,
    };
    this.zones.set(name, zone);
    return zone;
  }

  through(call: Call): Tpus {
    return {
      list: () => call('tpus.list', () => this.#list()),
      create: request => call('tpus.create', () => this.#create(request)),
      delete: (name, zone) => call('tpus.delete', () => this.#delete(name, zone)),
    };
  }

  /** A list may be behind: it shows then what was so a while ago. What is there it always has. */
  #list(): {tpus: Tpu[]; unreachable: string[]} {
    const unreachable = [...this.zones].filter(([, {unreachable}]) => unreachable).map(([name]) => name);
    const since = this.#setting.clockwork.now - STALE_MS;
    const isStale = this.#setting.strikes('stale');
    const ghosts = this.#lately.filter(node => node.changed_at > since && !this.nodes.has(node.name));
    const all = [...this.nodes.values(), ...(isStale ? ghosts : [])];
    const tpus = all.filter(({zone}) => !unreachable.includes(zone));
    return {
      tpus: tpus.map(({name, zone, state, before, changed_at, health, labels, created_at}) => ({
        name,
        zone,
        state: isStale && changed_at > since ? before : state,
        health,
        labels: {...labels},
        created_at,
      })),
      unreachable,
    };
  }

  turn(node: SimNode, state: string): void {
    Object.assign(node, {state, before: node.state, changed_at: this.#setting.clockwork.now});
    this.#setting.see(`a node is: ${state}`);
  }

  #create({name, zone, labels, metadata}: TpuRequest): 'started' | 'exists' {
    const {soldOut, overQuota} = this.#reach(zone, `create ${name}`);
    if (this.nodes.has(name)) return 'exists';
    if (soldOut) throw new TpuError('no-capacity', zone, `Failed to create ${name}: no capacity in ${zone}`);
    if (overQuota) throw new TpuError('quota', zone, `Failed to create ${name}: quota exceeded in ${zone}`);
    const {chance, clockwork} = this.#setting;
    const created_at = iso(clockwork.now);
    const health = 'HEALTHY';
    const was = {before: 'CREATING', changed_at: clockwork.now};
    const node = {name, zone, state: 'CREATING', ...was, health, labels, metadata, created_at};
    this.nodes.set(name, node);
    this.#setting.see('a node is: CREATING');
    this.made.push(`${name}#${metadata['gleaner-incarnation']}`);
    if (this.#setting.strikes('stuck')) {
      // The operation never ends, or it fails after minutes and the node is not there any more.
      if (chance.happens(0.5)) this.#later(node, chance.between(60, 600), () => this.remove(node));
      return 'started';
    }
    this.#later(node, chance.between(20, 150), () => {
      if (node.state !== 'CREATING') return;
      this.turn(node, 'READY');
      this.onReady(node);
    });
    return 'started';
  }

  #delete(name: string, zone: string): 'started' | 'absent' {
    this.#reach(zone, `delete ${name}`);
    const node = this.nodes.get(name);
    if (node?.zone !== zone) return 'absent';
    if (this.#setting.strikes('stuck')) return 'started';
    this.turn(node, 'DELETING');
    this.#later(node, this.#setting.chance.between(5, 90), () => this.remove(node));
    return 'started';
  }

  #reach(name: string, what: string): Zone {
    const zone = this.zone(name);
    if (zone.unreachable) throw new TpuError('transient', name, `Failed to ${what}: ${name} does not answer`);
    return zone;
  }

  #later(node: SimNode, delay_s: number, then: () => void): void {
    this.#setting.after(delay_s * 1000, () => {
      if (this.nodes.get(node.name) === node) then();
    });
  }

  remove(node: SimNode): void {
    if (this.nodes.get(node.name) !== node) return;
    this.nodes.delete(node.name);
    const {now} = this.#setting.clockwork;
    const lately = this.#lately.filter(({changed_at}) => changed_at > now - STALE_MS);
    this.#lately = [...lately, {...node, before: node.state, changed_at: now}];
    this.onGone(node);
  }
}
