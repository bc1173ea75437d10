/** Cloud TPU and Compute Engine in virtual time, as `shared/ports/ports.ts` promises them. */
import {TpuError} from '../../shared/contracts/errors.ts';
import {isLabelled} from '../../shared/domain/deployment.ts';
import {hostsOfType} from '../../shared/domain/fleet/accelerators.ts';
import type {Provider} from '../../shared/domain/records/providers.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Tpu, TpuRequest, Tpus} from '../../shared/ports/ports.ts';
import type {Call} from './call.ts';
import type {TpuFaults} from './tpu-faults.ts';
import {joined, type Listed, nodeAsListed, queuedAsListed} from './tpu-lists.ts';
import {type NodeRequest, type QueuedResource, TpuQueue} from './tpu-queue.ts';

/**
 * `before` is the state that the node had until `changed_at`; `from` is the queued resource that brought it. `state` is in the words of Cloud TPU, also
 * for an instance of Compute Engine: lists translate it.
 */
export type FakeNode = Tpu & {
  provider: Provider;
  state: string;
  accelerator: string;
  metadata: Record<string, string>;
  before: string;
  changed_at: number;
  from: QueuedResource | null;
};

/** States of a node that was taken away, as often as each is drawn. */
export const TAKEN = [
  ...['PREEMPTED', 'PREEMPTED', 'PREEMPTED'],
  ...['TERMINATED', 'STOPPED', 'STOPPING', 'HIDING', 'HIDDEN'],
];

/** Seconds after which an instance that was taken away is gone. */
const GONE_S = {least: 30, most: 120};

/** Seconds that a delete takes. */
export const DELETE_S = {least: 5, most: 90};

/** The longest time that a list is behind. */
export const STALE_MS = 90_000;

/** `isOmitted`: lists leave its nodes out. `isDark`: it does not answer, however often that is drawn anew. */
type Faults = {
  soldOut: boolean;
  overQuota: boolean;
  overRate: boolean;
  unreachable: boolean;
  isDark: boolean;
  isOmitted: boolean;
};
/** `isForbidden`: a permission is missing there. `slices`: nodes of several hosts that it has room for. `refusals`: why it has refused nodes. */
type Zone = Faults & {isForbidden: boolean; slices: number; refusals: Set<string>};
const OPEN: Faults = {
  ...{soldOut: false, overQuota: false, overRate: false},
  ...{unreachable: false, isDark: false, isOmitted: false},
};

export class FakeTpus {
  readonly nodes = new Map<string, FakeNode>();
  readonly queue: TpuQueue;
  readonly zones = new Map<string, Zone>();
  /** Every request that was accepted, as `name#incarnation`. */
  readonly made: string[] = [];
  readonly #faults: TpuFaults;
  #lately: FakeNode[] = [];
  /** The deployment whose nodes these are: nodes of any other are foreign. Undefined: every node of Gleaner is its own. */
  deployment: string | undefined;
  onReady: (node: FakeNode) => void = () => {};
  onGone: (node: FakeNode) => void = () => {};
  onAskedFor: (request: TpuRequest) => void = () => {};
  onDeleted: (node: FakeNode | undefined) => void = () => {};

  constructor(faults: TpuFaults) {
    this.#faults = faults;
    this.queue = new TpuQueue(faults, this);
  }

  zone(name: string): Zone {
    const zone = this.zones.get(name) ?? {...OPEN, isForbidden: false, slices: Infinity, refusals: new Set()};
    this.zones.set(name, zone);
    return zone;
  }

  /** Ends the faults of all zones. */
  openZones(): void {
    for (const zone of this.zones.values()) Object.assign(zone, OPEN);
  }

  node(name: string): FakeNode {
    const node = this.nodes.get(name);
    if (!node) throw new Error(`There is no node ${name}`);
    return node;
  }

  /** Names of nodes and queued resources of Gleaner. */
  names(): string[] {
    const ours = [...this.nodes.values()].filter(node => !this.#isForeign(node)).map(({name}) => name);
    return [...new Set([...ours, ...this.queue.keys()])];
  }

  states(): Record<string, string> {
    const queued = [...this.queue].map(([name, {state}]) => [name, `queue ${state}`]);
    return Object.fromEntries([...queued, ...[...this.nodes].map(([name, {state}]) => [name, state])]);
  }

  /** Adds a node, a queued resource or both without a request. */
  add({state, queued, ...tpu}: Tpu, metadata: Record<string, string> = {}): void {
    const {name, zone} = tpu;
    if (state !== null) {
      const was = {before: 'CREATING', changed_at: this.#faults.clockwork.now, accelerator: ''};
      this.nodes.set(name, {...tpu, provider: 'tpu-api', state, queued: null, ...was, metadata, from: null});
    }
    if (queued)
      this.queue.set(name, {
        ...queued,
        request: {name, zone, accelerator: '', labels: queued.labels, metadata},
      });
  }

  removeForeign(): void {
    for (const node of this.nodes.values()) if (this.#isForeign(node)) this.remove(node);
  }

  #isForeign({labels}: Tpu): boolean {
    const {deployment} = this;
    return deployment === undefined ? labels['managed-by'] !== 'gleaner' : !isLabelled(labels, deployment);
  }

  remove(node: FakeNode): void {
    if (this.nodes.get(node.name) !== node) return;
    this.nodes.delete(node.name);
    const {now} = this.#faults.clockwork;
    const lately = this.#lately.filter(({changed_at}) => changed_at > now - STALE_MS);
    this.#lately = [...lately, {...node, before: node.state, changed_at: now}];
    this.suspend(node);
    this.onGone(node);
  }

  /** The queued resource of a node that was taken away hears of it. */
  suspend(node: FakeNode): void {
    if (node.from) this.queue.suspend(node.from);
  }

  turn(node: FakeNode, state: string): void {
    Object.assign(node, {state, before: node.state, changed_at: this.#faults.clockwork.now});
    this.#faults.see(`a node is: ${state}`);
    // An instance deletes itself.
    if (node.provider === 'compute-engine' && TAKEN.includes(state))
      this.#later(node, this.#faults.chance.between(GONE_S.least, GONE_S.most), () => this.remove(node));
  }

  through(call: Call): Tpus {
    return {
      // Cloud TPU has two lists, and each is of another moment.
      list: async () => {
        const nodes = call('tpus.list', () => this.#listNodes());
        const queue = call('tpus.list the queue', () => this.#listQueue());
        const {tpus, unreachable} = joined(...(await Promise.all([nodes, queue])));
        return {tpus: tpus.filter(({zone}) => !this.zones.get(zone)?.isOmitted), unreachable};
      },
      get: (...of) => call('tpus.get', () => this.get(...of)),
      create: request => call('tpus.create', () => this.create(request)),
      delete: (...of) => call('tpus.delete', () => this.delete(...of)),
    };
  }

  get(name: string, zone: string): Tpu | undefined {
    this.#reach(zone, `get ${name}`);
    const {tpus} = joined(this.#nodesAt(false), this.#listQueue());
    return tpus.find(tpu => tpu.name === name && tpu.zone === zone);
  }

  create(request: TpuRequest): 'started' | 'exists' {
    const {name, zone, queue, metadata} = request;
    this.onAskedFor(request);
    const {overQuota, overRate, isForbidden} = this.#reach(zone, `create ${name}`);
    const soldOut = this.isSoldOut(request);
    if (queue ? this.queue.has(name) : this.nodes.has(name)) return 'exists';
    if (overRate) throw this.#refusal('rate', zone, `Failed to create ${name}: too many requests`);
    if (isForbidden) throw this.#refusal('permission', zone, `Failed to create ${name}: permission denied`);
    if (!queue) {
      // A zone without capacity says so at once, or in an operation that no function watches.
      if (soldOut && this.#faults.chance.happens(0.3)) return 'started';
      if (soldOut)
        throw this.#refusal('no-capacity', zone, `Failed to create ${name}: no capacity in ${zone}`);
      if (overQuota)
        throw this.#refusal('quota', zone, `Failed to create ${name}: quota exceeded in ${zone}`);
    }
    this.made.push(`${name}#${metadata['gleaner-incarnation']}`);
    if (queue) this.queue.enter(request, queue.valid_until_at);
    else this.make(request, null);
    return 'started';
  }

  isSoldOut({zone, accelerator}: Pick<TpuRequest, 'zone' | 'accelerator'>): boolean {
    const {soldOut, slices} = this.zone(zone);
    const isSlice = (type: string) => hostsOfType(type) > 1;
    if (soldOut || slices === Infinity || !isSlice(accelerator)) return soldOut;
    const nodes = [...this.nodes.values()].filter(node => node.zone === zone && isSlice(node.accelerator));
    return nodes.length >= slices;
  }

  #refusal(kind: 'no-capacity' | 'quota' | 'permission' | 'rate', zone: string, text: string): TpuError {
    this.zone(zone).refusals.add(kind);
    return new TpuError(kind, zone, text);
  }

  delete(name: string, zone: string, part?: 'queued'): 'started' | 'absent' {
    this.#reach(zone, `delete ${name}`);
    const queued = this.queue.get(name);
    const node = this.nodes.get(name);
    const isNodeThere = part !== 'queued' && node?.zone === zone;
    const isThere = queued ? queued.request.zone === zone : isNodeThere;
    if (!isThere) return 'absent';
    if (this.#faults.strikes('stuck')) return 'started';
    // A node that is not of the queued resource outlives it.
    const own = node && (!queued || node.from === queued) ? node : undefined;
    this.onDeleted(own);
    if (queued) this.queue.become(queued, 'DELETING');
    if (own) this.turn(own, 'DELETING');
    this.#faults.clockwork.after(this.#faults.chance.between(DELETE_S.least, DELETE_S.most) * 1000, () => {
      if (own) this.remove(own);
      if (queued && this.queue.holds(queued)) this.queue.delete(name);
    });
    return 'started';
  }

  make(request: NodeRequest, from: QueuedResource | null): void {
    const {name, zone, accelerator, labels, metadata, provider = 'tpu-api'} = request;
    const {chance, clockwork} = this.#faults;
    const created_at = iso(clockwork.now);
    const was = {
      before: 'CREATING',
      changed_at: clockwork.now,
      health: 'HEALTHY',
      symptoms: [],
      queued: null,
    };
    const made = {state: 'CREATING', ...was, labels, metadata, created_at, from};
    const node = {name, zone, accelerator, provider, ...made};
    this.nodes.set(name, node);
    this.#faults.see('a node is: CREATING');
    this.#faults.see(`a node comes from: ${provider}`);
    if (this.#faults.strikes('stuck')) {
      // The operation never ends, or it fails after minutes and its node is gone.
      if (chance.happens(0.5)) this.#later(node, chance.between(60, 600), () => this.remove(node));
      return;
    }
    this.#later(node, chance.between(20, 150), () => {
      if (node.state !== 'CREATING') return;
      this.turn(node, 'READY');
      if (from?.state === 'PROVISIONING') this.queue.become(from, 'ACTIVE');
      this.onReady(node);
    });
  }

  #later(node: FakeNode, delay_s: number, then: () => void): void {
    this.#faults.clockwork.after(delay_s * 1000, () => {
      if (this.nodes.get(node.name) === node) then();
    });
  }

  #reach(name: string, what: string): Zone {
    const zone = this.zone(name);
    if (zone.unreachable) throw new TpuError('transient', name, `Failed to ${what}: ${name} does not answer`);
    return zone;
  }

  /** A list may be behind and show an earlier state, or leave out nodes. */
  #listNodes(): Listed {
    const {tpus, unreachable} = this.#nodesAt(this.#faults.strikes('stale'));
    if (!this.#faults.strikes('omission')) return {tpus, unreachable};
    return {tpus: tpus.filter(() => this.#faults.chance.happens(0.5)), unreachable};
  }

  #nodesAt(isStale: boolean): Listed {
    const since = this.#faults.clockwork.now - STALE_MS;
    const ghosts = this.#lately.filter(node => node.changed_at > since && !this.nodes.has(node.name));
    const nodes = [...this.nodes.values(), ...(isStale ? ghosts : [])];
    return this.#answered(nodes.map(node => nodeAsListed(node, isStale && node.changed_at > since)));
  }

  #listQueue(): Listed {
    const {now} = this.#faults.clockwork;
    return this.#answered([...this.queue.values()].map(queued => queuedAsListed(queued, now)));
  }

  #answered(all: Tpu[]): Listed {
    const unreachable = [...this.zones].filter(([, zone]) => zone.unreachable).map(([name]) => name);
    return {tpus: all.filter(({zone}) => !unreachable.includes(zone)), unreachable};
  }
}
