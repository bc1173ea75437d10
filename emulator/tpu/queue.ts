import {randomUUID} from 'node:crypto';
import {ApiError} from '../http/errors.ts';
import type {JsonObject} from '../http/json.ts';
import type {CloudDatabase} from '../state/database.ts';
import {badFault, type Faults, type QueueFault} from '../state/faults.ts';
import {Resources} from '../state/resources.ts';
import {Timers} from '../state/timers.ts';
import type {Operation} from '../vm/operations.ts';
import type {TpuChange, Tpus} from '../vm/tpus.ts';
import type {QueueState} from './catalog.ts';
import type {TpuNode} from './node.ts';
import {type NodeSpec, parseNode, parseQueuedResource, type QueuedSpec} from './spec.ts';

/** Queued resource of one node. */
export type QueuedResource = {
  zone: string;
  name: string;
  id: string;
  state: QueueState;
  /** Cause of the state: a request of the user, or the service itself. */
  initiator: 'USER' | 'SERVICE';
  /** A google.rpc.Status in the state FAILED, otherwise null. */
  error: JsonObject | null;
  spec: QueuedSpec;
  created_at: string;
  request_id: string;
  /** Time of the next step in milliseconds since 1970; null while the queued resource waits for its node or a request. */
  due_at: number | null;
};

export type QueueOptions = {
  database: CloudDatabase;
  faults: Faults;
  nodes: Tpus<NodeSpec>;
  project: string;
  /** Duration of each step of a queued resource, and interval of the retries in a zone without capacity. */
  step_ms: number;
  trouble: (error: unknown) => void;
};

/**
 * State machine of queued resources: ACCEPTED → WAITING_FOR_RESOURCES → PROVISIONING → ACTIVE, and after the node is lost SUSPENDING →
 * SUSPENDED. A queued resource that was ACTIVE never waits again.
 */
export class Queue {
  readonly #options: QueueOptions;
  readonly #rows: Resources<QueuedResource>;
  readonly #timers = new Timers();

  constructor(options: QueueOptions) {
    this.#options = options;
    this.#rows = new Resources(options.database, 'queuedResources');
    options.nodes.onChange = (node, change) => this.#onNode(node, change);
  }

  /** Continues every queued resource from its stored state. */
  start(): void {
    for (const queued of this.list()) {
      const isInterrupted = queued.state === 'PROVISIONING' && !this.#nodeOf(queued);
      this.#schedule(isInterrupted ? {...queued, due_at: Date.now()} : queued);
    }
  }

  stop(): void {
    this.#timers.clearAll();
  }

  list(zone = '-'): QueuedResource[] {
    return this.#rows.list(zone);
  }

  get(zone: string, name: string): QueuedResource {
    const queued = this.#rows.find(zone, name);
    if (!queued) throw new ApiError(404, `Resource '${this.path({zone, name})}' was not found`);
    return queued;
  }

  path({zone, name}: Pick<QueuedResource, 'zone' | 'name'>): string {
    return `projects/${this.#options.project}/locations/${zone}/queuedResources/${name}`;
  }

  /** Queued resource of a node. */
  of({zone, name}: Pick<TpuNode, 'zone' | 'name'>): QueuedResource | undefined {
    return this.list(zone).find(({spec, state}) => spec.node_id === name && state !== 'FAILED');
  }

  create(zone: string, name: string, request_id: string, body: JsonObject): Operation {
    const {database, nodes, step_ms} = this.#options;
    const spec = parseQueuedResource(name, body);
    parseNode(spec.node_id, spec.node);
    nodes.checkRate(zone);
    return database.transaction(() => {
      const existing = this.#rows.find(zone, name);
      const earlier =
        existing && request_id !== '' && existing.request_id === request_id
          ? nodes.operations.last(existing, 'create')
          : undefined;
      if (earlier) return earlier;
      if (existing) throw new ApiError(409, `Resource '${this.path({zone, name})}' already exists`);
      const made: QueuedResource = {
        ...{zone, name, id: randomUUID(), spec, request_id},
        ...{state: 'ACCEPTED', initiator: 'USER', error: null},
        ...{created_at: new Date().toISOString(), due_at: Date.now() + step_ms},
      };
      this.#rows.insert(made);
      this.#schedule(made);
      return nodes.operations.begin(made, `queuedResources/${name}`, 'create');
    });
  }

  /** Deletes a queued resource: with `force` together with its node, without `force` only if it has none. */
  delete(zone: string, name: string, force: boolean): Operation {
    const {nodes, step_ms} = this.#options;
    const queued = this.get(zone, name);
    const earlier = nodes.operations.last(queued, 'delete');
    if (earlier) return earlier;
    if (!force && !['ACCEPTED', 'WAITING_FOR_RESOURCES', 'FAILED', 'SUSPENDED'].includes(queued.state))
      throw new ApiError(
        400,
        `The queued resource ${name} is ${queued.state}: delete its node first, or use force`,
        {word: 'FAILED_PRECONDITION'},
      );
    const message = `The queued resource ${name} was deleted during its creation`;
    nodes.operations.end(queued, 'create', {code: 1, message});
    this.#move(queued, {state: 'DELETING', initiator: 'USER', due_at: Date.now() + step_ms});
    return nodes.operations.begin(queued, `queuedResources/${name}`, 'delete');
  }

  /** Injects a fault into a queued resource and returns a sentence about the effect. */
  async inflict(kind: QueueFault, name: string): Promise<string> {
    const queued = this.list().find(each => each.name === name && each.state !== 'DELETING');
    if (!queued) {
      const names = this.list().map(each => each.name);
      throw badFault(
        `Unknown queued resource "${name}"; the queue has ${names.length > 0 ? names.join(', ') : 'no queued resource now'}`,
      );
    }
    switch (kind) {
      case 'suspend':
        this.#suspend(queued, 'SERVICE');
        return `suspended ${name}: its node is deleted and gets no replacement`;
      case 'fail':
        this.#fail(queued, {code: 13, message: 'An internal error has occurred'});
        return `${name} FAILED: it stays in the queue until it is deleted`;
    }
  }

  #nodeOf({zone, spec}: QueuedResource): TpuNode | undefined {
    return this.#options.nodes.list(zone).find(({name}) => name === spec.node_id);
  }

  #move(queued: QueuedResource, changes: Partial<QueuedResource>): void {
    const next = {...queued, ...changes};
    this.#rows.update(next);
    this.#schedule(next);
  }

  #schedule({zone, name, due_at}: QueuedResource): void {
    this.#timers.set(`${zone}/${name}`, due_at, () => {
      const current = this.#rows.find(zone, name);
      if (current) this.#advance(current).catch(this.#options.trouble);
    });
  }

  async #advance(queued: QueuedResource): Promise<void> {
    const {nodes} = this.#options;
    const node = this.#nodeOf(queued);
    switch (queued.state) {
      case 'ACCEPTED':
      case 'WAITING_FOR_RESOURCES':
      case 'PROVISIONING':
        this.#provision(queued);
        return;
      case 'SUSPENDING':
        if (node) await nodes.delete(queued.zone, node.name);
        else this.#move(queued, {state: 'SUSPENDED', due_at: null});
        return;
      case 'DELETING':
        if (node) await nodes.delete(queued.zone, node.name);
        else this.#remove(queued);
        return;
      default:
        return;
    }
  }

  #provision(queued: QueuedResource): void {
    const {faults, nodes, step_ms} = this.#options;
    const {zone, name, spec} = queued;
    const {valid_until} = spec;
    // The operation ends when the queue has accepted the request. The state shows the outcome.
    nodes.operations.end(queued, 'create');
    if (valid_until !== null && Date.now() > valid_until) {
      const message = `The queued resource ${name} was not provisioned before its valid until time expired`;
      this.#fail(queued, {code: 4, message});
      return;
    }
    if (faults.zone('stockout', zone) !== undefined) {
      this.#move(queued, {state: 'WAITING_FOR_RESOURCES', due_at: Date.now() + step_ms});
      return;
    }
    try {
      this.#move(queued, {state: 'PROVISIONING', due_at: null});
      nodes.create(zone, spec.node_id, parseNode(spec.node_id, spec.node));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const code = error.status === 429 ? 8 : error.status === 409 ? 6 : 3;
      this.#fail(queued, {code, message: error.message});
    }
  }

  #fail(queued: QueuedResource, error: JsonObject): void {
    this.#options.nodes.operations.end(queued, 'create', error);
    this.#move(queued, {state: 'FAILED', initiator: 'SERVICE', error, due_at: null});
  }

  #suspend(queued: QueuedResource, initiator: 'USER' | 'SERVICE'): void {
    this.#move(queued, {state: 'SUSPENDING', initiator, due_at: Date.now() + this.#options.step_ms});
  }

  #remove(queued: QueuedResource): void {
    this.#schedule({...queued, due_at: null});
    this.#options.nodes.operations.end(queued, 'delete');
    this.#rows.delete(queued);
  }

  /** Moves the queued resource of a node to the state that follows from the change of the node. */
  #onNode(node: TpuNode, change: TpuChange): void {
    const queued = this.of(node);
    if (!queued) return;
    if (queued.state === 'DELETING') {
      if (change.kind === 'gone' || change.kind === 'failed') this.#remove(queued);
      return;
    }
    if (queued.state === 'SUSPENDING' || queued.state === 'SUSPENDED') {
      if (change.kind === 'gone') this.#move(queued, {state: 'SUSPENDED', due_at: null});
      return;
    }
    switch (change.kind) {
      case 'ready':
        this.#move(queued, {state: 'ACTIVE', due_at: null});
        return;
      case 'failed':
        this.#fail(queued, change.error);
        return;
      case 'preempted':
        this.#suspend(queued, 'SERVICE');
        return;
      case 'gone':
        this.#suspend(queued, node.state === 'DELETING' ? 'USER' : 'SERVICE');
        return;
    }
  }
}
