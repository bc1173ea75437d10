import {regionOf} from '../../shared/domain/names.ts';
import type {CloudDatabase} from '../database.ts';
import {badFault, type NodeFault, nodeTargetOf} from '../faults.ts';
import {ApiError} from '../http/errors.ts';
import type {JsonObject} from '../http/json.ts';
import {newTpuId, TpuVms, type TpuVmsOptions} from '../vm/tpu-vms.ts';
import type {VmSpec} from '../vm/vm-spec.ts';
import type {NodeState} from './catalog.ts';
import {type NodeChange, subnetOf, type TpuNode, vmsOf} from './node.ts';
import {type Operation, Operations} from './operations.ts';
import {type NodeSpec, parseNode} from './spec.ts';

type Row = Omit<TpuNode, 'spec'> & {resource: string};

export type NodesOptions = TpuVmsOptions & {
  database: CloudDatabase;
  project: string;
  delete_ms: number;
  notice_ms: number;
};

/** State machine of TPU nodes: CREATING → READY → (PREEMPTED) → DELETING → gone. */
export class Nodes {
  readonly #options: NodesOptions;
  readonly #vms: TpuVms<TpuNode>;
  readonly operations: Operations;
  /** Listener for changes of a node; `node` has the state before the change. */
  onChange: (node: TpuNode, change: NodeChange) => void = () => {};

  constructor(options: NodesOptions) {
    this.#options = options;
    this.#vms = new TpuVms(options, vmsOf, node => this.#advance(node));
    this.operations = new Operations(options.database, options.project);
  }

  /** Continues every node from its stored state. A READY node boots again on its old disk. */
  async start(): Promise<void> {
    for (const node of this.list()) {
      if (node.state === 'READY') await this.#vms.boot(node);
      this.#vms.schedule(node);
    }
  }

  stop(): void {
    this.#vms.end();
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
    const due_at = this.#vms.creationEnd({zone});
    const {operation, node} = database.transaction(() => {
      if (this.#find(zone, name))
        throw new ApiError(409, `Resource '${this.path({zone, name})}' already exists`);
      const begun = this.operations.begin(zone, this.path({zone, name}), 'create');
      const made: TpuNode = {
        ...{zone, name, id: this.#newId(), state: 'CREATING', spec, created_at: new Date().toISOString()},
        ...{operation: begun.name, due_at},
      };
      database.run(
        'INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
        ...[zone, name, made.id, made.state, JSON.stringify(spec), made.created_at, begun.name, due_at],
      );
      return {operation: begun, node: made};
    });
    this.#vms.schedule(node);
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
    await this.#vms.stop(node);
    return operation;
  }

  /** Injects a fault into a node or one of its hosts, such as `NAME-w-1`. Returns a sentence about the effect. */
  async inflict(kind: NodeFault, target: string): Promise<string> {
    const {notice_ms} = this.#options;
    const {name, cut_s} = nodeTargetOf(kind, target);
    const {node, vms} = this.#targetOf(name);
    if ((kind === 'preempt' || kind === 'vanish') && name !== node.name)
      throw badFault(`${name} is a host, and Cloud TPU takes all hosts of a TPU: name ${node.name}`);
    if (kind !== 'preempt' && kind !== 'vanish' && node.state !== 'READY')
      throw badFault(`${node.name} is ${node.state}: the VMs of a READY TPU alone are on`);
    switch (kind) {
      case 'preempt':
        await this.#preempt(node);
        return `preempted ${name}: ${vmsIn(vms)} gone, the node is PREEMPTED until it is deleted`;
      case 'preempt-with-notice':
      case 'maintenance':
        this.#move(node, 'READY', {operation: null, due_at: Date.now() + notice_ms});
        this.#vms.announce(kind, vms);
        return `gave ${name} notice: ${node.name} is PREEMPTED in ${notice_ms / 1000} s`;
      case 'vanish':
        await this.#remove(node);
        return `${name} vanished: the node is gone, and ${vmsIn(vms)} too`;
      default:
        return this.#vms.inflict(kind, vms, {name, cut_s, stays: `the node stays ${node.state}`});
    }
  }

  /** Names of the nodes and of their hosts. */
  names(): string[] {
    const nodes = this.list().filter(({state}) => state !== 'DELETING');
    return nodes.flatMap(node => [...new Set([node.name, ...vmsOf(node).map(vm => vm.name)])]);
  }

  /** The node of a name, with all of its VMs; of the name of a VM, with this VM alone. */
  #targetOf(name: string): {node: TpuNode; vms: VmSpec[]} {
    const nodes = this.list().filter(({state}) => state !== 'DELETING');
    for (const node of nodes) {
      const vms = vmsOf(node);
      if (node.name === name) return {node, vms};
      const vm = vms.find(each => each.name === name);
      if (vm) return {node, vms: [vm]};
    }
    throw badFault(`Unknown TPU "${name}"`);
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
    this.#vms.schedule({...node, state, ...next});
  }

  /** An id whose addresses no other node has. */
  #newId(): string {
    const taken = new Set(this.list().map(({id}) => subnetOf(id)));
    let id = newTpuId();
    while (taken.has(subnetOf(id))) id = newTpuId();
    return id;
  }

  async #advance(node: TpuNode): Promise<void> {
    switch (node.state) {
      case 'CREATING':
        return this.#finishCreate(node);
      case 'READY':
        return this.#preempt(node);
      case 'DELETING':
        // The operation ends when the VMs and their disks are gone. A fault may remove the node before.
        await this.#vms.destroy(node);
        if (this.#find(node.zone, node.name)?.id !== node.id) return;
        return this.#remove(node);
      case 'PREEMPTED':
        return;
    }
  }

  async #finishCreate(node: TpuNode): Promise<void> {
    const {database, faults} = this.#options;
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
    await this.#vms.bootNew(ready);
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
    await this.#vms.stop(node);
  }

  async #remove(node: TpuNode): Promise<void> {
    this.#vms.schedule({...node, due_at: null});
    this.#options.database.transaction(() => {
      if (node.operation && node.state === 'DELETING') this.operations.succeed(node.operation, {});
      else if (node.operation) this.operations.fail(node.operation, 13, `The node ${node.name} vanished`);
      this.#options.database.run('DELETE FROM nodes WHERE id = ?', node.id);
      this.onChange(node, {kind: 'gone'});
    });
    await this.#vms.destroy(node);
  }
}

function fromRow({resource, ...row}: Row): TpuNode {
  return {...row, spec: JSON.parse(resource) as NodeSpec};
}

function vmsIn(vms: VmSpec[]): string {
  return vms.length === 1 ? 'its VM is' : `its ${vms.length} VMs are`;
}
