/** The bucket, the topics and Cloud TPU in virtual time. What they promise is in `shared/ports.ts`; the rest can go wrong. */
import {crc32} from 'node:zlib';
import {TpuError} from '../../shared/contracts/errors.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Queued, Refusal} from '../../shared/domain/worker/provider-states.ts';
import type {ObjectInfo, Objects, Tpu, TpuRequest, Tpus} from '../../shared/ports.ts';
import type {Context} from './context.ts';
import type {Clockwork} from './kernel.ts';
import type {Call} from './store.ts';

export class SimObjects {
  readonly #objects = new Map<string, {info: ObjectInfo; bytes: Buffer}>();
  readonly #clockwork: Clockwork;
  #generation = 1_700_000_000_000_000n;
  onFinalized: (info: ObjectInfo) => void = () => {};
  onDeleted: (name: string) => void = () => {};

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
      list: (prefix, {start, limit} = {}) => call('list', () => this.list(prefix, start).slice(0, limit)),
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
      delete: name =>
        call('delete', () => {
          if (this.#objects.delete(name)) this.onDeleted(name);
        }),
    };
  }
}

/** `before` is the state that it had until `changed_at`. */
export type SimNode = Tpu & {
  state: string;
  metadata: Record<string, string>;
  before: string;
  changed_at: number;
  from: SimQueued | null;
};

/** A request in the queue of its zone; its node is made when there is room. */
export type SimQueued = Queued & {request: TpuRequest};

/** What a node that was taken away may show. */
export const TAKEN = [
  'PREEMPTED',
  'PREEMPTED',
  'PREEMPTED',
  'TERMINATED',
  'STOPPED',
  'STOPPING',
  'HIDING',
  'HIDDEN',
];

/** A list may be so much behind. */
export const STALE_MS = 90_000;

/** What a zone does for a while: it gives nodes, has none, is over quota, or does not answer; `isDark`: until all is calm. */
export type Zone = {soldOut: boolean; overQuota: boolean; unreachable: boolean; isDark: boolean};

export class SimTpus {
  readonly nodes = new Map<string, SimNode>();
  readonly queue = new Map<string, SimQueued>();
  readonly zones = new Map<string, Zone>();
  /** Every node that was made, as `name#incarnation`. */
  readonly made: string[] = [];
  readonly #context: Context;
  #lately: SimNode[] = [];
  onReady: (node: SimNode) => void = () => {};
  onGone: (node: SimNode) => void = () => {};

  constructor(context: Context) {
    this.#context = context;
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

  /** What there is of ours of any kind, by name. */
  names(): string[] {
    const ours = [...this.nodes.values()].filter(node => !isForeign(node)).map(({name}) => name);
    return [...new Set([...ours, ...this.queue.keys()])];
  }

  /** Somebody makes a node of their own, until they need it no more. */
  addForeign(name: string, zone: string): void {
    if (this.#context.isCalm || this.nodes.has(name) || this.queue.has(name)) return;
    const created_at = iso(this.#context.clockwork.now);
    const was = {state: 'READY', before: 'CREATING', changed_at: this.#context.clockwork.now};
    const said = {health: 'HEALTHY', symptoms: [], queued: null, labels: {'managed-by': 'somebody'}};
    this.nodes.set(name, {name, zone, ...was, ...said, metadata: {}, created_at, from: null});
  }

  /** A node that we labelled and that fits no slot: only a tick can find and delete it. */
  addStray(name: string): void {
    if (this.#context.isCalm || this.nodes.has(name)) return;
    const [zone = ''] = this.zones.keys();
    const created_at = iso(this.#context.clockwork.now);
    const was = {state: 'READY', before: 'CREATING', changed_at: this.#context.clockwork.now};
    const said = {health: 'HEALTHY', symptoms: [], queued: null, labels: {'managed-by': 'gleaner'}};
    this.nodes.set(name, {name, zone, ...was, ...said, metadata: {}, created_at, from: null});
  }

  removeForeign(): void {
    for (const node of this.nodes.values()) if (isForeign(node)) this.remove(node);
  }

  through(call: Call): Tpus {
    return {
      // Two lists, as the API has them, and each is of another moment.
      list: async () => {
        const nodes = call('tpus.list', () => this.#listNodes());
        const queue = call('tpus.list the queue', () => this.#listQueue());
        return joined(...(await Promise.all([nodes, queue])));
      },
      get: (name, zone) => call('tpus.get', () => this.#get(name, zone)),
      create: request => call('tpus.create', () => this.#create(request)),
      delete: (name, zone) => call('tpus.delete', () => this.#delete(name, zone)),
    };
  }

  #get(name: string, zone: string): Tpu | undefined {
    this.#reach(zone, `get ${name}`);
    const {tpus} = joined(this.#nodesAt(false), this.#listQueue());
    return tpus.find(tpu => tpu.name === name && tpu.zone === zone);
  }

  /** A list may be behind and show an earlier state, or leave nodes out that are there. */
  #listNodes(): Listed {
    const {tpus, unreachable} = this.#nodesAt(this.#context.strikes('stale'));
    if (!this.#context.strikes('omission')) return {tpus, unreachable};
    return {tpus: tpus.filter(() => this.#context.chance.happens(0.5)), unreachable};
  }

  #nodesAt(isStale: boolean): Listed {
    const unreachable = this.#unreachable();
    const since = this.#context.clockwork.now - STALE_MS;
    const ghosts = this.#lately.filter(node => node.changed_at > since && !this.nodes.has(node.name));
    const all = [...this.nodes.values(), ...(isStale ? ghosts : [])];
    const tpus = all.filter(({zone}) => !unreachable.includes(zone));
    return {
      tpus: tpus.map(({name, zone, state, before, changed_at, health, labels, symptoms, created_at}) => ({
        name,
        zone,
        state: isStale && changed_at > since ? before : state,
        health,
        labels: {...labels},
        symptoms: [...symptoms],
        queued: null,
        created_at,
      })),
      unreachable,
    };
  }

  #unreachable(): string[] {
    return [...this.zones].filter(([, {unreachable}]) => unreachable).map(([name]) => name);
  }

  #listQueue(): Listed {
    const unreachable = this.#unreachable();
    const queue = [...this.queue.values()].filter(({request}) => !unreachable.includes(request.zone));
    return {
      tpus: queue.map(({state, initiator, error, valid_until_at, request: {name, zone, labels}}) => ({
        name,
        zone,
        state: null,
        health: 'HEALTH_UNSPECIFIED',
        labels: {...labels},
        symptoms: [],
        queued: {state, initiator, error, valid_until_at, labels: {...labels}},
        created_at: iso(this.#context.clockwork.now),
      })),
      unreachable,
    };
  }

  turn(node: SimNode, state: string): void {
    Object.assign(node, {state, before: node.state, changed_at: this.#context.clockwork.now});
    this.#context.see(`a node is: ${state}`);
  }

  #create(request: TpuRequest): 'started' | 'exists' {
    const {name, zone, queue} = request;
    this.#context.invariants.onAskedFor(request);
    const {soldOut, overQuota} = this.#reach(zone, `create ${name}`);
    if (queue) {
      if (this.queue.has(name)) return 'exists';
      this.#enter(request, queue.valid_until_at);
      return 'started';
    }
    if (this.nodes.has(name)) return 'exists';
    // A zone with nothing left says so at once, or in an operation that nobody watches any more.
    if (soldOut && this.#context.chance.happens(0.3)) return 'started';
    if (soldOut) throw new TpuError('no-capacity', zone, `Failed to create ${name}: no capacity in ${zone}`);
    if (overQuota) throw new TpuError('quota', zone, `Failed to create ${name}: quota exceeded in ${zone}`);
    this.#make(request, null);
    return 'started';
  }

  #make({name, zone, labels, metadata}: TpuRequest, from: SimQueued | null): void {
    const {chance, clockwork} = this.#context;
    const created_at = iso(clockwork.now);
    const said = {health: 'HEALTHY', symptoms: [], queued: null};
    const was = {before: 'CREATING', changed_at: clockwork.now};
    const node = {name, zone, state: 'CREATING', ...was, ...said, labels, metadata, created_at, from};
    this.nodes.set(name, node);
    this.#context.see('a node is: CREATING');
    this.made.push(`${name}#${metadata['gleaner-incarnation']}`);
    if (this.#context.strikes('stuck')) {
      // The operation never ends, or it fails after minutes and the node is not there any more.
      if (chance.happens(0.5)) this.#later(node, chance.between(60, 600), () => this.remove(node));
      return;
    }
    this.#later(node, chance.between(20, 150), () => {
      if (node.state !== 'CREATING') return;
      this.turn(node, 'READY');
      if (from?.state === 'PROVISIONING') this.#become(from, 'ACTIVE');
      this.onReady(node);
    });
  }

  #enter(request: TpuRequest, valid_until_at: string): void {
    const queued = {state: '', initiator: 'USER', error: null, request, valid_until_at};
    this.queue.set(request.name, queued);
    this.#become(queued, 'ACCEPTED');
    this.#context.after(this.#context.chance.between(1, 40) * 1000, () => this.#provide(queued));
  }

  /** Tries again and again until the zone has room, or the request is over. */
  #provide(queued: SimQueued): void {
    const {chance, clockwork} = this.#context;
    if (!this.#isQueued(queued) || !['ACCEPTED', 'WAITING_FOR_RESOURCES'].includes(queued.state)) return;
    const {name, zone} = queued.request;
    const {soldOut, overQuota} = this.zone(zone);
    if (overQuota) this.#fail(queued, 'quota');
    else if (clockwork.now > Date.parse(queued.valid_until_at ?? '')) this.#fail(queued, 'no-capacity');
    else if (this.#context.strikes('suspension')) this.#suspend(queued);
    else if (soldOut) {
      this.#become(queued, 'WAITING_FOR_RESOURCES');
      // Some are forgotten there.
      if (!this.#context.strikes('stuck'))
        this.#context.after(chance.between(20, 90) * 1000, () => this.#provide(queued));
    } else if (this.nodes.has(name)) this.#fail(queued, 'bad-request');
    else {
      this.#become(queued, 'PROVISIONING');
      if (!this.#context.strikes('stuck')) this.#make(queued.request, queued);
    }
  }

  #isQueued(queued: SimQueued): boolean {
    return this.queue.get(queued.request.name) === queued;
  }

  #become(queued: SimQueued, state: string): void {
    queued.state = state;
    this.#context.see(`a queued resource is: ${state}`);
  }

  #fail(queued: SimQueued, kind: Refusal): void {
    this.#become(queued, 'FAILED');
    queued.error = {kind, message: `${kind} in ${queued.request.zone}`};
  }

  /** Its node is lost, and nothing brings another. */
  #suspend(queued: SimQueued): void {
    if (!this.#isQueued(queued) || ['DELETING', 'SUSPENDING', 'SUSPENDED'].includes(queued.state)) return;
    this.#become(queued, 'SUSPENDING');
    queued.initiator = 'SERVICE';
    this.#context.after(this.#context.minutes(0, 3), () => {
      if (queued.state !== 'SUSPENDING') return;
      this.#become(queued, 'SUSPENDED');
      const node = this.nodes.get(queued.request.name);
      if (node?.from === queued) this.remove(node);
    });
  }

  /** The node was taken away, and still shows; its queued resource hears of it. */
  taken(node: SimNode): void {
    if (node.from) this.#suspend(node.from);
  }

  #delete(name: string, zone: string): 'started' | 'absent' {
    this.#reach(zone, `delete ${name}`);
    const queued = this.queue.get(name);
    const node = this.nodes.get(name);
    const isThere = queued ? queued.request.zone === zone : node?.zone === zone;
    if (!isThere) return 'absent';
    if (this.#context.strikes('stuck')) return 'started';
    // A node that is not of the queued resource outlives it.
    const own = node && (!queued || node.from === queued) ? node : undefined;
    this.#context.invariants.onNodeDeleted(own);
    if (queued) this.#become(queued, 'DELETING');
    if (own) this.turn(own, 'DELETING');
    this.#context.after(this.#context.chance.between(5, 90) * 1000, () => {
      if (own) this.remove(own);
      if (queued && this.#isQueued(queued)) this.queue.delete(name);
    });
    return 'started';
  }

  #reach(name: string, what: string): Zone {
    const zone = this.zone(name);
    if (zone.unreachable) throw new TpuError('transient', name, `Failed to ${what}: ${name} does not answer`);
    return zone;
  }

  #later(node: SimNode, delay_s: number, then: () => void): void {
    this.#context.after(delay_s * 1000, () => {
      if (this.nodes.get(node.name) === node) then();
    });
  }

  remove(node: SimNode): void {
    if (this.nodes.get(node.name) !== node) return;
    this.nodes.delete(node.name);
    const {now} = this.#context.clockwork;
    const lately = this.#lately.filter(({changed_at}) => changed_at > now - STALE_MS);
    this.#lately = [...lately, {...node, before: node.state, changed_at: now}];
    this.taken(node);
    this.onGone(node);
  }
}

function isForeign({labels}: Tpu): boolean {
  return labels['managed-by'] === 'somebody';
}

type Listed = {tpus: Tpu[]; unreachable: string[]};

/** A zone that answered one of the two shows half of what it has. */
function joined(nodes: Listed, queue: Listed): Listed {
  const unreachable = [...new Set([...nodes.unreachable, ...queue.unreachable])];
  const found = new Map(nodes.tpus.map(tpu => [tpu.name, tpu]));
  for (const {queued, ...bare} of queue.tpus)
    found.set(bare.name, {...(found.get(bare.name) ?? bare), queued});
  return {tpus: [...found.values()].filter(({zone}) => !unreachable.includes(zone)), unreachable};
}
