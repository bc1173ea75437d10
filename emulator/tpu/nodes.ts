import {randomInt} from 'node:crypto';
import {regionOf} from '../../shared/domain/names.ts';
import type {CloudDatabase} from '../database.ts';
import {badFault, type Faults, type NodeFault} from '../faults.ts';
import {ApiError} from '../http/errors.ts';
import type {JsonObject} from '../http/json.ts';
import type {Fleet} from '../vm/vms.ts';
import type {NodeState} from './catalog.ts';
import {type NodeChange, type TpuNode, vmOf} from './node.ts';
import {type Operation, Operations} from './operations.ts';
import {type NodeSpec, parseNode} from './spec.ts';
import {Timers} from './timers.ts';

type Row = Omit<TpuNode, 'spec'> & {resource: string};

export type NodesOptions = {
  database: CloudDatabase;
  faults: Faults;
  fleet: Fleet;
  project: string;
  create_ms: number;
  delete_ms: number;
  notice_ms: number;
  trouble: (error: unknown) => void;
};

/** State machine of TPU nodes: CREATING → READY → (PREEMPTED) → DELETING → gone. `fleet` runs the VMs of the nodes. */
export class Nodes {
  readonly #options: NodesOptions;
  readonly #timers = new Timers();
  readonly operations: Operations;
  /** Listener for changes of a node; `node` has the state before the change. */
  onChange: (node: TpuNode, change: NodeChange) => void = () => {};

  constructor(options: NodesOptions) {
    this.#options = options;
    this.operations = new Operations(options.database, options.project);
  }

  /** Continues every node from its stored state. A READY node boots again on its old disk. */
  async start(): Promise<void> {
    const nodes = this.list();
    await this.#options.fleet.sweepDisks(nodes.map(node => node.id));
    for (const node of nodes) {
      if (node.state === 'READY') await this.#options.fleet.boot(vmOf(node));
      this.#schedule(node);
    }
  }

  stop(): void {
    this.#timers.clear();
  }

  list(zone = '-'): TpuNode[] {
    const rows = this.#options.database.all<Row>(
      `SELECT * FROM nodes WHERE ? IN (zone, '-') ORDER BY zone, name`,
      zone,
    );
    return rows.map(fromRow);
  }

  get(zone: string, name: string): TpuNode {
    const node = this.#find(zone, name);
    if (!node) throw new ApiError(404, `Resource '${this.path({zone, name})}' was not found`);
    return node;
  }

  path({zone, name}: Pick<TpuNode, 'zone' | 'name'>): string {
    return `projects/${this.#options.project}/locations/${zone}/nodes/${name}`;
  }

  create(zone: string, name: string, body: JsonObject): Operation {
    const {database, faults} = this.#options;
    const spec = parseNode(name, body);
    if (faults.zone('quota', zone) !== undefined) {
      const region = regionOf(zone);
      const metric = `TPU${spec.acceleratorType.split('-')[0]?.toUpperCase()}PreemptiblePerProjectPerZoneForTPUAPI`;
      throw new ApiError(429, `Quota '${metric}' exhausted. Limit 0 in region ${region}`);
    }
    const slow_s = faults.zone('slow-create', zone) ?? faults.zone('late-failure', zone);
    const ends_at = Date.now() + (slow_s === undefined ? this.#options.create_ms : slow_s * 1000);
    const due_at = faults.zone('endless-create', zone) === undefined ? ends_at : null;
    const {operation, node} = database.transaction(() => {
      if (this.#find(zone, name))
        throw new ApiError(409, `Resource '${this.path({zone, name})}' already exists`);
      const begun = this.operations.begin(zone, this.path({zone, name}), 'create');
      const made: TpuNode = {
        ...{zone, name, id: newId(), state: 'CREATING', spec, created_at: new Date().toISOString()},
        ...{operation: begun.name, due_at},
      };
      database.run(
        'INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
        ...[zone, name, made.id, made.state, JSON.stringify(spec), made.created_at, begun.name, due_at],
      );
      return {operation: begun, node: made};
    });
    this.#schedule(node);
    return operation;
  }

  /** Deletes a node. A second delete returns the operation of the first. */
  async delete(zone: string, name: string): Promise<Operation> {
    const node = this.get(zone, name);
    if (node.state === 'DELETING' && node.operation) return this.operations.get(node.operation);
    const operation = this.#options.database.transaction(() => {
      if (node.operation)
        this.operations.fail(node.operation, 1, `The node ${name} was deleted during its creation`);
      const begun = this.operations.begin(zone, this.path(node), 'delete');
      this.#move(node, 'DELETING', {operation: begun.name, due_at: Date.now() + this.#options.delete_ms});
      return begun;
    });
    await this.#options.fleet.stop(node.id);
    return operation;
  }

  /** Injects a fault into the node of a name and returns a sentence about the effect. */
  async inflict(kind: NodeFault, name: string): Promise<string> {
    const {fleet, notice_ms} = this.#options;
    const node = this.list().find(candidate => candidate.name === name && candidate.state !== 'DELETING');
    if (!node) {
      const names = this.list().map(candidate => candidate.name);
      throw badFault(
        `Unknown TPU "${name}"; the pool has ${names.length > 0 ? names.join(', ') : 'no TPU now'}`,
      );
    }
    switch (kind) {
      case 'preempt':
        await this.#preempt(node);
        return `preempted ${name}: its VM is gone, the node is PREEMPTED until it is deleted`;
      case 'preempt-with-notice':
      case 'maintenance':
        if (node.state !== 'READY')
          throw badFault(`${name} is ${node.state}: only a READY TPU gets a notice`);
        this.#move(node, 'READY', {operation: null, due_at: Date.now() + notice_ms});
        if (kind === 'maintenance') fleet.announceMaintenance(node.id);
        else fleet.giveNotice(node.id);
        return `gave ${name} notice: it is PREEMPTED in ${notice_ms / 1000} s`;
      case 'vanish':
        await this.#remove(node);
        return `${name} vanished: the node and its VM are gone`;
      case 'dead':
        await fleet.stop(node.id);
        return `stopped the VM of ${name}: the node stays ${node.state}`;
    }
  }

  #find(zone: string, name: string): TpuNode | undefined {
    const row = this.#options.database.get<Row>(
      'SELECT * FROM nodes WHERE zone = ? AND name = ?',
      zone,
      name,
    );
    return row && fromRow(row);
  }

  #move(node: TpuNode, state: NodeState, next: Pick<TpuNode, 'operation' | 'due_at'>): void {
    const {operation, due_at} = next;
    this.#options.database.run(
      'UPDATE nodes SET state = ?, operation = ?, due_at = ? WHERE id = ?',
      ...[state, operation, due_at, node.id],
    );
    this.#schedule({...node, state, ...next});
  }

  #schedule(node: TpuNode): void {
    this.#timers.set(node.id, node.due_at, () => this.#advance(node).catch(this.#options.trouble));
  }

  async #advance(node: TpuNode): Promise<void> {
    switch (node.state) {
      case 'CREATING':
        return this.#finishCreate(node);
      case 'READY':
        return this.#preempt(node);
      case 'DELETING':
        // The operation ends when the VM and its disk are gone. A fault may remove the node before.
        await this.#options.fleet.destroy(node.id);
        if (this.#find(node.zone, node.name)?.id !== node.id) return;
        return this.#remove(node);
      case 'PREEMPTED':
        return;
    }
  }

  async #finishCreate(node: TpuNode): Promise<void> {
    const {database, faults, fleet} = this.#options;
    if (faults.zone('late-failure', node.zone) !== undefined)
      return this.#failCreate(node, 13, 'An internal error has occurred');
    if (faults.zone('stockout', node.zone) !== undefined) {
      const message = `There is no more capacity in the zone "${node.zone}"; you can try in another zone where Cloud TPU Nodes are offered (see https://cloud.google.com/tpu/docs/regions) [EID: 0x${BigInt(node.id).toString(16)}]`;
      return this.#failCreate(node, 8, message);
    }
    const ready: TpuNode = {...node, state: 'READY', operation: null, due_at: null};
    database.transaction(() => {
      this.#move(node, 'READY', ready);
      if (node.operation) this.operations.succeed(node.operation, {node: node.name});
      this.onChange(node, {kind: 'ready'});
    });
    await fleet.boot(vmOf(ready));
  }

  #failCreate(node: TpuNode, code: number, message: string): void {
    this.#options.database.transaction(() => {
      if (node.operation) this.operations.fail(node.operation, code, message);
      this.#options.database.run('DELETE FROM nodes WHERE id = ?', node.id);
      this.onChange(node, {kind: 'failed', code, message});
    });
  }

  async #preempt(node: TpuNode): Promise<void> {
    this.#options.database.transaction(() => {
      if (node.operation) this.operations.succeed(node.operation, {node: node.name});
      this.#move(node, 'PREEMPTED', {operation: null, due_at: null});
      this.onChange(node, {kind: 'preempted'});
    });
    await this.#options.fleet.stop(node.id);
  }

  async #remove(node: TpuNode): Promise<void> {
    this.#schedule({...node, due_at: null});
    this.#options.database.transaction(() => {
      if (node.operation && node.state === 'DELETING') this.operations.succeed(node.operation, {});
      else if (node.operation) this.operations.fail(node.operation, 13, `The node ${node.name} vanished`);
      this.#options.database.run('DELETE FROM nodes WHERE id = ?', node.id);
      this.onChange(node, {kind: 'gone'});
    });
    await this.#options.fleet.destroy(node.id);
  }
}

function fromRow({resource, ...row}: Row): TpuNode {
  return {...row, spec: JSON.parse(resource) as NodeSpec};
}

function newId(): string {
  return (BigInt(randomInt(1, 2 ** 31)) * 2n ** 31n + BigInt(randomInt(2 ** 31))).toString();
}
