import type {CloudDatabase} from '../database.ts';
import {ApiError} from '../errors.ts';
import {badFault, type Faults, type QueueFault} from '../faults.ts';
import type {JsonObject} from '../json.ts';
import type {QueueState} from './catalog.ts';
import type {NodeChange, TpuNode} from './node.ts';
import type {Nodes} from './nodes.ts';
import type {Operation} from './operations.ts';
import {parseNode, parseQueuedResource, type QueuedSpec} from './spec.ts';
import {Alarms} from './timers.ts';

export type QueuedResource = {
  zone: string;
  name: string;
  state: QueueState;
  /** Who brought it into its state: USER or SERVICE. */
  initiator: 'USER' | 'SERVICE';
  /** A google.rpc.Status, when it FAILED. */
  error: JsonObject | null;
  spec: QueuedSpec;
  created_at: string;
  request_id: string;
  /** The operation that made it, and the one that deletes it. */
  creation: string;
  deletion: string | null;
  due_at: number | null;
};
type Row = Omit<QueuedResource, 'error' | 'spec'> & {error: string | null; resource: string};

export type QueueOptions = {
  database: CloudDatabase;
  faults: Faults;
  nodes: Nodes;
  project: string;
  /** How long it takes to accept a request, and how often a zone without room is asked again. */
  step_ms: number;
  trouble: (error: unknown) => void;
};

/**
 * The life of queued resources of one node: ACCEPTED → WAITING_FOR_RESOURCES → PROVISIONING → ACTIVE, and then SUSPENDING →
 * SUSPENDED when the node is lost. Nothing that was ACTIVE is put into the queue again.
 */
export class Queue {
  readonly #options: QueueOptions;
  readonly #alarms = new Alarms();

  constructor(options: QueueOptions) {
    this.#options = options;
    options.nodes.onChange = (node, change) => this.#onNode(node, change);
  }

  /** Takes up every request where the last process left it. */
  start(): void {
    for (const queued of this.list()) {
      const isCutShort = queued.state === 'PROVISIONING' && !this.#nodeOf(queued);
      this.#arm(isCutShort ? {...queued, due_at: Date.now()} : queued);
    }
  }

  stop(): void {
    this.#alarms.clear();
  }

  list(zone = '-'): QueuedResource[] {
    return this.#options.database
      .all<Row>(`SELECT * FROM queued_resources WHERE ? IN (zone, '-') ORDER BY zone, name`, zone)
      .map(fromRow);
  }

  get(zone: string, name: string): QueuedResource {
    const queued = this.#find(zone, name);
    if (!queued) throw new ApiError(404, `Resource '${this.path({zone, name})}' was not found`);
    return queued;
  }

  path({zone, name}: Pick<QueuedResource, 'zone' | 'name'>): string {
    return `projects/${this.#options.project}/locations/${zone}/queuedResources/${name}`;
  }

  /** The one whose node this is. */
  of({zone, name}: Pick<TpuNode, 'zone' | 'name'>): QueuedResource | undefined {
    return this.list(zone).find(({spec, state}) => spec.node_id === name && state !== 'FAILED');
  }

  create(zone: string, name: string, request_id: string, body: JsonObject): Operation {
    const {database, nodes, step_ms} = this.#options;
    const spec = parseQueuedResource(name, body);
    parseNode(spec.node_id, spec.node);
    return database.transaction(() => {
      const existing = this.#find(zone, name);
      if (existing && request_id !== '' && existing.request_id === request_id)
        return nodes.operations.get(existing.creation);
      if (existing) throw new ApiError(409, `Resource '${this.path({zone, name})}' already exists`);
      const begun = nodes.operations.begin(zone, this.path({zone, name}), 'create');
      const made: QueuedResource = {
        ...{zone, name, state: 'ACCEPTED', initiator: 'USER', error: null, spec, request_id},
        ...{created_at: new Date().toISOString(), creation: begun.name, deletion: null},
        due_at: Date.now() + step_ms,
      };
      database.run(
        'INSERT INTO queued_resources VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
        ...[zone, name, made.state, made.initiator, null, JSON.stringify(spec), made.created_at],
        ...[request_id, made.creation, null, made.due_at],
      );
      this.#arm(made);
      return begun;
    });
  }

  /** With force its node goes first; without, it must have none. */
  delete(zone: string, name: string, force: boolean): Operation {
    const {nodes, step_ms} = this.#options;
    const queued = this.get(zone, name);
    if (queued.deletion) return nodes.operations.get(queued.deletion);
    if (!force && !['ACCEPTED', 'WAITING_FOR_RESOURCES', 'FAILED', 'SUSPENDED'].includes(queued.state))
      throw new ApiError(
        400,
        `The queued resource ${name} is ${queued.state}: delete its node first, or use force`,
        {word: 'FAILED_PRECONDITION'},
      );
    const begun = nodes.operations.begin(zone, this.path(queued), 'delete');
    nodes.operations.fail(queued.creation, 1, `The queued resource ${name} was deleted while it was made`);
    const due_at = Date.now() + step_ms;
    this.#move(queued, {state: 'DELETING', initiator: 'USER', deletion: begun.name, due_at});
    return begun;
  }

  /** Does a fault to a queued resource and says what was done. */
  async inflict(kind: QueueFault, name: string): Promise<string> {
    const queued = this.list().find(each => each.name === name && each.state !== 'DELETING');
    if (!queued) {
      const names = this.list().map(each => each.name);
      throw badFault(
        `Unknown queued resource "${name}"; there ${names.length > 0 ? `are ${names.join(', ')}` : 'is none'}`,
      );
    }
    switch (kind) {
      case 'suspend':
        this.#suspend(queued, 'SERVICE');
        return `suspended ${name}: its node goes, and nothing brings another`;
      case 'fail':
        this.#fail(queued, 13, 'An internal error has occurred');
        return `${name} FAILED: it stays in the queue until it is deleted`;
    }
  }

  #find(zone: string, name: string): QueuedResource | undefined {
    const row = this.#options.database.get<Row>(
      'SELECT * FROM queued_resources WHERE zone = ? AND name = ?',
      zone,
      name,
    );
    return row && fromRow(row);
  }

  #nodeOf({zone, spec}: QueuedResource): TpuNode | undefined {
    return this.#options.nodes.list(zone).find(({name}) => name === spec.node_id);
  }

  #move(queued: QueuedResource, changes: Partial<QueuedResource>): void {
    const next = {...queued, ...changes};
    this.#options.database.run(
      'UPDATE queued_resources SET state = ?, initiator = ?, error = ?, deletion = ?, due_at = ? WHERE zone = ? AND name = ?',
      ...[next.state, next.initiator, next.error && JSON.stringify(next.error), next.deletion, next.due_at],
      ...[queued.zone, queued.name],
    );
    this.#arm(next);
  }

  #arm(queued: QueuedResource): void {
    const {zone, name} = queued;
    this.#alarms.set(`${zone}/${name}`, queued.due_at, () => {
      const now = this.#find(zone, name);
      if (now) this.#advance(now).catch(this.#options.trouble);
    });
  }

  async #advance(queued: QueuedResource): Promise<void> {
    const {nodes} = this.#options;
    const node = this.#nodeOf(queued);
    switch (queued.state) {
      case 'ACCEPTED':
      case 'WAITING_FOR_RESOURCES':
      case 'PROVISIONING':
        this.#ask(queued);
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

  #ask(queued: QueuedResource): void {
    const {faults, nodes, step_ms} = this.#options;
    const {zone, name, spec} = queued;
    const {valid_until} = spec;
    // Its operation is over when it is in the queue; what comes of it, its state says.
    nodes.operations.succeed(queued.creation, {queued: name});
    if (valid_until !== null && Date.now() > valid_until) {
      this.#fail(
        queued,
        4,
        `The queued resource ${name} was not provisioned before its valid until time expired`,
      );
      return;
    }
    if (faults.zone('stockout', zone) !== undefined) {
      this.#move(queued, {state: 'WAITING_FOR_RESOURCES', due_at: Date.now() + step_ms});
      return;
    }
    try {
      this.#move(queued, {state: 'PROVISIONING', due_at: null});
      nodes.create(zone, spec.node_id, spec.node);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#fail(queued, error.status === 429 ? 8 : error.status === 409 ? 6 : 3, error.message);
    }
  }

  #fail(queued: QueuedResource, code: number, message: string): void {
    this.#options.nodes.operations.fail(queued.creation, code, message);
    this.#move(queued, {state: 'FAILED', initiator: 'SERVICE', error: {code, message}, due_at: null});
  }

  #suspend(queued: QueuedResource, initiator: 'USER' | 'SERVICE'): void {
    this.#move(queued, {state: 'SUSPENDING', initiator, due_at: Date.now() + this.#options.step_ms});
  }

  #remove(queued: QueuedResource): void {
    this.#arm({...queued, due_at: null});
    if (queued.deletion) this.#options.nodes.operations.succeed(queued.deletion, {});
    const {zone, name} = queued;
    this.#options.database.run('DELETE FROM queued_resources WHERE zone = ? AND name = ?', zone, name);
  }

  /** Its node is READY, was taken, failed to be made, or is gone. */
  #onNode(node: TpuNode, change: NodeChange): void {
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
        this.#fail(queued, change.code, change.message);
        return;
      case 'taken':
        this.#suspend(queued, 'SERVICE');
        return;
      case 'gone':
        this.#suspend(queued, node.state === 'DELETING' ? 'USER' : 'SERVICE');
        return;
    }
  }
}

function fromRow({resource, error, ...row}: Row): QueuedResource {
  return {...row, spec: JSON.parse(resource) as QueuedSpec, error: error === null ? null : JSON.parse(error)};
}
