import {randomUUID} from 'node:crypto';
import {quotaIdsOf} from '../../shared/domain/fleet/accelerators.ts';
import {regionOf} from '../../shared/domain/names.ts';
import {acceleratorOf} from '../../shared/domain/records/providers.ts';
import type {CloudDatabase} from '../database.ts';
import {badFault, type NodeFault, nodeTargetOf} from '../faults.ts';
import {ApiError} from '../http/errors.ts';
import type {JsonObject} from '../http/json.ts';
import {newTpuId, TpuVms, type TpuVmsOptions} from '../vm/tpu-vms.ts';
import {DEFAULT_ACCOUNT} from '../vm/vm-spec.ts';
import {type Instance, type InstanceStatus, vmOf} from './instance.ts';
import {parseInstance} from './spec.ts';

type Row = Omit<Instance, 'spec' | 'is_deleted'> & {resource: string; is_deleted: number};

/** Zonal operation of Compute Engine. `error` is a list of codes and messages, and the HTTP status of the failure. */
export type InstanceOperation = {
  name: string;
  zone: string;
  target: string;
  target_id: string;
  kind: 'insert' | 'delete';
  created_at: string;
  ended_at: string | null;
  error: string | null;
};

type Failure = {code: string; message: string; status: number};

export type InstancesOptions = TpuVmsOptions & {
  database: CloudDatabase;
  project: string;
  delete_ms: number;
  notice_ms: number;
  /** Interval at which a flex-start instance is tried again in a zone without capacity. */
  step_ms: number;
};

/**
 * State machine of instances: (PENDING) → PROVISIONING → RUNNING → STOPPING → TERMINATED or gone. An instance that is preempted, or at
 * the end of its run duration, stops, and is gone where its termination action is DELETE.
 */
export class Instances {
  readonly #options: InstancesOptions;
  readonly #vms: TpuVms<Instance>;

  constructor(options: InstancesOptions) {
    this.#options = options;
    this.#vms = new TpuVms(
      options,
      instance => [vmOf(instance)],
      instance => this.#advance(instance),
    );
  }

  /** Continues every instance from its stored status. A RUNNING instance boots again on its old disk. */
  async start(): Promise<void> {
    for (const instance of this.list()) {
      if (instance.status === 'RUNNING') await this.#vms.boot(instance);
      this.#vms.schedule(instance);
    }
  }

  stop(): void {
    this.#vms.end();
  }

  /** Instances of a zone, or of every zone for `-`. */
  list(zone = '-'): Instance[] {
    const rows = this.#options.database.all<Row>(
      `SELECT * FROM instances WHERE ? IN (zone, '-') ORDER BY zone, name`,
      zone,
    );
    return rows.map(fromRow);
  }

  get(zone: string, name: string): Instance {
    const instance = this.#find(zone, name);
    if (!instance) throw new ApiError(404, `The resource '${this.path({zone, name})}' was not found`);
    return instance;
  }

  path({zone, name}: Pick<Instance, 'zone' | 'name'>): string {
    return `projects/${this.#options.project}/zones/${zone}/instances/${name}`;
  }

  operation(zone: string, name: string): InstanceOperation {
    const found = this.#options.database.get<InstanceOperation>(
      'SELECT * FROM instance_operations WHERE name = ? AND zone = ?',
      ...[name, zone],
    );
    if (!found)
      throw new ApiError(
        404,
        `The resource 'projects/${this.#options.project}/zones/${zone}/operations/${name}' was not found`,
      );
    return found;
  }

  /** A repeated request with the id of an earlier one answers with the operation of that one. */
  insert(zone: string, request_id: string, body: JsonObject): InstanceOperation {
    const {database, faults} = this.#options;
    const name = typeof body.name === 'string' ? body.name : '';
    if (!/^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$/.test(name))
      throw new ApiError(
        400,
        `Invalid value for field 'resource.name': '${name}'. Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'`,
      );
    const spec = parseInstance(zone, body, DEFAULT_ACCOUNT);
    const is_flex = spec.wait_ms !== null;
    if (faults.zone('quota', zone) !== undefined) {
      const accelerator = acceleratorOf(spec.machine_type) ?? '';
      const isSpot = is_flex || spec.scheduling.provisioningModel === 'SPOT';
      const [quota] = quotaIdsOf(accelerator, isSpot, 'compute-engine');
      throw new ApiError(403, `Quota '${quota}' exceeded. Limit: 0.0 in region ${regionOf(zone)}.`, {
        reason: 'quotaExceeded',
      });
    }
    const operation = `operation-${randomUUID()}`;
    const instance: Instance = {
      ...{zone, name, id: newTpuId(), spec, created_at: new Date().toISOString(), is_deleted: false},
      status: is_flex ? 'PENDING' : 'PROVISIONING',
      due_at: this.#vms.creationEnd({zone}),
      waits_until: spec.wait_ms === null ? null : Date.now() + spec.wait_ms,
    };
    const made = database.transaction(() => {
      const earlier =
        request_id === ''
          ? undefined
          : database.get<{name: string}>(
              'SELECT name FROM instance_operations WHERE request_id = ? AND zone = ?',
              ...[request_id, zone],
            );
      if (earlier) return earlier.name;
      if (this.#find(zone, name))
        throw new ApiError(409, `The resource '${this.path({zone, name})}' already exists`, {
          reason: 'alreadyExists',
        });
      database.run(
        'INSERT INTO instances VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
        ...[zone, name, instance.id, instance.status, JSON.stringify(spec), instance.created_at],
        ...[instance.due_at, instance.waits_until, 0],
      );
      this.#begin(operation, instance, 'insert', request_id);
      return operation;
    });
    if (made === operation) this.#vms.schedule(instance);
    return this.operation(zone, made);
  }

  /** Deletes an instance. A second delete has an operation of its own, which ends with the first. */
  async delete(zone: string, name: string): Promise<InstanceOperation> {
    const instance = this.get(zone, name);
    const operation = `operation-${randomUUID()}`;
    this.#options.database.transaction(() => {
      this.#end(instance, 'insert', {
        code: 'RESOURCE_NOT_FOUND',
        message: `${name} was deleted`,
        status: 404,
      });
      this.#begin(operation, instance, 'delete', '');
      if (instance.is_deleted) return;
      const due_at = Date.now() + this.#options.delete_ms;
      this.#move(instance, 'STOPPING', {due_at, is_deleted: true});
    });
    await this.#vms.stop(instance);
    return this.operation(zone, operation);
  }

  names(): string[] {
    return this.list().flatMap(({name, is_deleted}) => (is_deleted ? [] : name));
  }

  /** Injects a fault into the instance of a name and returns a sentence about the effect. */
  async inflict(kind: NodeFault, target: string): Promise<string> {
    const {name, cut_s} = nodeTargetOf(kind, target);
    const instance = this.list().find(each => each.name === name && !each.is_deleted);
    if (!instance) throw badFault(`Unknown instance "${name}"`);
    const {status, spec} = instance;
    if (kind !== 'preempt' && kind !== 'vanish' && status !== 'RUNNING')
      throw badFault(`${name} is ${status}: the VM of a RUNNING instance alone is on`);
    switch (kind) {
      case 'preempt':
        await this.#take(instance);
        return `preempted ${name}: ${spec.deletes_itself ? 'it stops, and is gone then' : 'it stops, and stays TERMINATED'}`;
      case 'preempt-with-notice':
      case 'maintenance': {
        const notice_ms = Math.min(spec.notice_ms ?? this.#options.notice_ms, this.#options.notice_ms);
        this.#move(instance, 'RUNNING', {due_at: Date.now() + notice_ms});
        this.#vms.announce(kind, [vmOf(instance)], {signal: spec.notice_ms === null});
        return `gave ${name} notice: it stops in ${notice_ms / 1000} s`;
      }
      case 'vanish':
        await this.#remove(instance);
        return `${name} vanished: the instance and its VM are gone`;
      default:
        return this.#vms.inflict(kind, [vmOf(instance)], {
          ...{name, cut_s},
          stays: `the instance stays ${status}`,
        });
    }
  }

  #begin(
    operation: string,
    {zone, name, id}: Instance,
    kind: InstanceOperation['kind'],
    request_id: string,
  ): void {
    this.#options.database.run(
      'INSERT INTO instance_operations VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, ?)',
      ...[operation, zone, name, id, kind, new Date().toISOString(), request_id],
    );
  }

  /** Ends the open operations of a kind on an instance. */
  #end({id}: Instance, kind: InstanceOperation['kind'], failure?: Failure): void {
    this.#options.database.run(
      'UPDATE instance_operations SET ended_at = ?, error = ? WHERE target_id = ? AND kind = ? AND ended_at IS NULL',
      ...[new Date().toISOString(), failure ? JSON.stringify(failure) : null, id, kind],
    );
  }

  #find(zone: string, name: string): Instance | undefined {
    const row = this.#options.database.get<Row>(
      'SELECT * FROM instances WHERE zone = ? AND name = ?',
      ...[zone, name],
    );
    return row && fromRow(row);
  }

  #move(
    instance: Instance,
    status: InstanceStatus,
    next: {due_at: number | null; is_deleted?: boolean},
  ): void {
    const {due_at, is_deleted = instance.is_deleted} = next;
    this.#options.database.run(
      'UPDATE instances SET status = ?, due_at = ?, is_deleted = ? WHERE id = ?',
      ...[status, due_at, Number(is_deleted), instance.id],
    );
    this.#vms.schedule({...instance, status, due_at, is_deleted});
  }

  async #advance(instance: Instance): Promise<void> {
    switch (instance.status) {
      case 'PENDING':
        return this.#provide(instance);
      case 'PROVISIONING':
        return this.#run(instance);
      case 'RUNNING':
        // A notice of preemption, or the end of the run duration.
        return this.#take(instance);
      case 'STOPPING':
        if (instance.is_deleted || instance.spec.deletes_itself) return this.#remove(instance);
        return this.#move(instance, 'TERMINATED', {due_at: null});
      case 'TERMINATED':
        return;
    }
  }

  /** A flex-start instance gets its machine, waits on, or is gone after its time. */
  #provide(instance: Instance): void {
    const {faults, create_ms, step_ms} = this.#options;
    const {zone, name, waits_until} = instance;
    if (faults.zone('stockout', zone) === undefined) {
      this.#move(instance, 'PROVISIONING', {due_at: Date.now() + create_ms});
      return;
    }
    if (Date.now() < (waits_until ?? 0)) {
      this.#move(instance, 'PENDING', {due_at: Date.now() + step_ms});
      return;
    }
    this.#fail(instance, {
      code: 'REQUEST_VALID_FOR_DURATION_EXPIRED',
      message: `${name} got no capacity in ${zone} before its request expired`,
      status: 503,
    });
  }

  async #run(instance: Instance): Promise<void> {
    const {database, faults, project} = this.#options;
    const {zone, spec} = instance;
    if (faults.zone('late-failure', zone) !== undefined)
      return this.#fail(instance, {
        code: 'INTERNAL_ERROR',
        message: 'Internal error. Please try again',
        status: 500,
      });
    if (faults.zone('stockout', zone) !== undefined)
      return this.#fail(instance, {
        code: 'ZONE_RESOURCE_POOL_EXHAUSTED',
        message: `The zone 'projects/${project}/zones/${zone}' does not have enough resources available to fulfill the request. Try a different zone, or try again later.`,
        status: 503,
      });
    const due_at = spec.run_ms === null ? null : Date.now() + spec.run_ms;
    database.transaction(() => {
      this.#move(instance, 'RUNNING', {due_at});
      this.#end(instance, 'insert');
    });
    await this.#vms.bootNew(instance);
  }

  #fail(instance: Instance, failure: Failure): void {
    this.#options.database.transaction(() => {
      this.#end(instance, 'insert', failure);
      this.#options.database.run('DELETE FROM instances WHERE id = ?', instance.id);
    });
  }

  async #take(instance: Instance): Promise<void> {
    this.#move(instance, 'STOPPING', {due_at: Date.now() + this.#options.delete_ms});
    await this.#vms.stop(instance);
  }

  async #remove(instance: Instance): Promise<void> {
    this.#vms.schedule({...instance, due_at: null});
    // The operation ends when the VM and its disk are gone.
    await this.#vms.destroy(instance);
    this.#options.database.transaction(() => {
      this.#end(instance, 'insert', {
        code: 'RESOURCE_NOT_FOUND',
        message: `${instance.name} is gone`,
        status: 404,
      });
      this.#end(instance, 'delete');
      this.#options.database.run('DELETE FROM instances WHERE id = ?', instance.id);
    });
  }
}

function fromRow({resource, is_deleted, ...row}: Row): Instance {
  return {...row, is_deleted: is_deleted === 1, spec: JSON.parse(resource) as Instance['spec']};
}
