import {randomInt} from 'node:crypto';
import {ApiError} from '../http/errors.ts';
import type {JsonObject} from '../http/json.ts';
import type {CloudDatabase} from '../state/database.ts';
import {badFault, type Faults, type NodeFault, nodeTargetOf} from '../state/faults.ts';
import {Resources} from '../state/resources.ts';
import {Timers} from '../state/timers.ts';
import {type Operation, Operations} from './operations.ts';
import type {VmSpec} from './vm-spec.ts';
import type {Fleet} from './vms.ts';

type TpuState = 'WAITING' | 'CREATING' | 'RUNNING' | 'STOPPING' | 'STOPPED' | 'DELETING';

/** Fields that the spec of each API has. Times in milliseconds. */
type Spec = {
  labels: Record<string, string>;
  /** How long it may run. */
  run_ms?: number | null;
  /** How long it waits for capacity; null if it fails at once. */
  wait_ms?: number | null;
  /** Time from the notice of a preemption to its signal; null if both come at once. */
  notice_ms?: number | null;
  /** True if it is deleted after a preemption. */
  deletes_itself?: boolean;
};

/** A node of Cloud TPU or an instance of Compute Engine. */
export type Tpu<S = Spec> = {
  zone: string;
  name: string;
  /** An int64 as a string; each incarnation of a name has a new id. */
  id: string;
  state: TpuState;
  spec: S;
  created_at: string;
  /** Time of the next state in milliseconds since 1970; null without one. */
  due_at: number | null;
};

export type TpuChange = {kind: 'ready' | 'preempted' | 'gone'} | {kind: 'failed'; error: JsonObject};

/** How the APIs of TPUs differ. */
export type TpuApi<S extends Spec> = {
  kind: 'nodes' | 'instances';
  api: 'tpu' | 'compute';
  /** Part of the paths before the zone, and the first word of an error about a resource. */
  place: 'locations' | 'zones';
  subject: string;
  /** The states under the names of the API. */
  states: Record<TpuState, string>;
  vmsOf(tpu: Tpu<S>): VmSpec[];
  quotaError(zone: string, spec: S): ApiError;
  rateLimit: string;
  /** Failures of an operation in the form of the API. */
  failures: Record<
    'deleted' | 'gone' | 'internal' | 'stockout' | 'expired',
    (tpu: Tpu<S>, project: string) => JsonObject
  >;
};

export type TpusOptions = {
  database: CloudDatabase;
  faults: Faults;
  fleet: Fleet;
  project: string;
  create_ms: number;
  delete_ms: number;
  notice_ms: number;
  /** Interval at which a TPU that waits for capacity is tried again. */
  step_ms: number;
  trouble: (error: unknown) => void;
};

/** TPUs of one API: (WAITING) → CREATING → RUNNING → (STOPPING) → STOPPED → DELETING → gone. */
export class Tpus<S extends Spec = Spec> {
  readonly #options: TpusOptions;
  readonly #api: TpuApi<S>;
  readonly #rows: Resources<Tpu<S>>;
  readonly #timers = new Timers();
  readonly operations: Operations;
  /** Listener for changes of a TPU, which still has the state before the change. */
  onChange: (tpu: Tpu<S>, change: TpuChange) => void = () => {};

  constructor(options: TpusOptions, api: TpuApi<S>) {
    this.#options = options;
    this.#api = api;
    this.#rows = new Resources(options.database, api.kind);
    this.operations = new Operations(options.database, api.api);
  }

  /** Continues every TPU from its stored state. A running TPU boots again on its old disk. */
  async start(): Promise<void> {
    for (const tpu of this.list()) {
      if (tpu.state === 'RUNNING') await this.#boot(this.#api.vmsOf(tpu));
      this.#schedule(tpu);
    }
  }

  stop(): void {
    this.#timers.clearAll();
  }

  list(zone = '-'): Tpu<S>[] {
    return this.#rows.list(zone);
  }

  /** The TPUs as `GET /_local/state` lists them. */
  shown(): {name: string; zone: string; id: string; state: string; vms: VmSpec[]}[] {
    const {states, vmsOf} = this.#api;
    return this.list().map(tpu => ({...tpu, state: states[tpu.state], vms: vmsOf(tpu)}));
  }

  get(zone: string, name: string): Tpu<S> {
    const tpu = this.#rows.find(zone, name);
    if (tpu) return tpu;
    throw new ApiError(404, `${this.#api.subject} '${this.path({zone, name})}' was not found`);
  }

  path({zone, name}: Pick<Tpu, 'zone' | 'name'>): string {
    const {place, kind} = this.#api;
    return `projects/${this.#options.project}/${place}/${zone}/${kind}/${name}`;
  }

  /** A repeated request with an earlier id returns the operation of the earlier request. */
  create(zone: string, name: string, spec: S, request_id = ''): Operation {
    const {database, faults} = this.#options;
    const {kind, subject, quotaError} = this.#api;
    this.checkRate(zone);
    if (faults.zone('quota', zone) !== undefined) throw quotaError(zone, spec);
    const tpu: Tpu<S> = {
      ...{zone, name, id: this.#newId(), spec, created_at: new Date().toISOString()},
      state: typeof spec.wait_ms === 'number' ? 'WAITING' : 'CREATING',
      due_at: this.#creationEnd(zone),
    };
    return database.transaction(() => {
      const earlier = this.operations.ofRequest(zone, request_id);
      if (earlier) return earlier;
      if (this.#rows.find(zone, name))
        throw new ApiError(409, `${subject} '${this.path(tpu)}' already exists`, {reason: 'alreadyExists'});
      this.#rows.insert(tpu);
      this.#schedule(tpu);
      return this.operations.begin(tpu, `${kind}/${name}`, 'create', request_id);
    });
  }

  checkRate(zone: string): void {
    if (this.#options.faults.zone('rate', zone) === undefined) return;
    throw new ApiError(429, `Quota exceeded for ${this.#api.rateLimit} for consumer 'project_number:1'.`);
  }

  /** Deletes a TPU. A second delete returns the first operation at Cloud TPU, and a new one at Compute Engine. */
  async delete(zone: string, name: string): Promise<Operation> {
    const tpu = this.get(zone, name);
    const {kind, failures} = this.#api;
    const earlier = kind === 'nodes' && tpu.state === 'DELETING' && this.operations.last(tpu, 'delete');
    if (earlier) return earlier;
    const {database, delete_ms, project} = this.#options;
    const operation = database.transaction(() => {
      this.operations.end(tpu, 'create', failures.deleted(tpu, project));
      if (tpu.state !== 'DELETING') this.#move(tpu, 'DELETING', delete_ms);
      return this.operations.begin(tpu, `${kind}/${name}`, 'delete');
    });
    await this.#stop(tpu);
    return operation;
  }

  /** Names of the TPUs and of their hosts. */
  names(): string[] {
    const tpus = this.list().filter(({state}) => state !== 'DELETING');
    return tpus.flatMap(tpu => [...new Set([tpu.name, ...this.#api.vmsOf(tpu).map(vm => vm.name)])]);
  }

  /** Injects a fault into a TPU or one of its hosts, such as `NAME-w-1`. Returns a sentence about the effect. */
  async inflict(kind: NodeFault, target: string): Promise<string> {
    const {fleet} = this.#options;
    const {states} = this.#api;
    const {name, cut_s} = nodeTargetOf(kind, target);
    const {tpu, vms} = this.#targetOf(name);
    const isOfAll = kind === 'preempt' || kind === 'vanish';
    if (isOfAll && name !== tpu.name)
      throw badFault(`${name} is a host, and Cloud TPU takes all hosts of a TPU: name ${tpu.name}`);
    if (!isOfAll && tpu.state !== 'RUNNING')
      throw badFault(`${tpu.name} is ${states[tpu.state]}: only the VMs of a ${states.RUNNING} TPU run`);
    switch (kind) {
      case 'preempt':
        await this.#preempt(tpu);
        return `preempted ${name}: its VM stops, and it is ${tpu.spec.deletes_itself ? 'gone then' : `${states.STOPPED} until it is deleted`}`;
      case 'preempt-with-notice':
      case 'maintenance':
        return `gave ${name} notice: ${tpu.name} is preempted in ${this.#announce(kind, tpu, vms) / 1000} s`;
      case 'vanish':
        await this.#remove(tpu);
        return `${name} vanished, and its VM too`;
      case 'dead':
        await Promise.all(vms.map(({id}) => fleet.stop(id)));
        return `stopped the VM of ${name}: the TPU stays ${states[tpu.state]}`;
      case 'restart':
        await Promise.all(vms.map(vm => fleet.restart(vm)));
        return `restarted the VM of ${name} on its disk: the TPU stays ${states[tpu.state]}`;
      case 'cut':
        for (const {id} of vms) fleet.cut(id, cut_s * 1000);
        return `cut ${name} off: worker-api receives nothing from it for ${cut_s} s`;
    }
  }

  /** Announces the end of a TPU to its VMs, and returns the time until the end. */
  #announce(kind: 'preempt-with-notice' | 'maintenance', tpu: Tpu<S>, vms: VmSpec[]): number {
    const {fleet} = this.#options;
    const own_ms = tpu.spec.notice_ms ?? null;
    const notice_ms = Math.min(own_ms ?? this.#options.notice_ms, this.#options.notice_ms);
    this.#move(tpu, 'RUNNING', notice_ms);
    for (const {id} of vms)
      if (kind === 'maintenance') fleet.announceMaintenance(id);
      else fleet.giveNotice(id, {signal: own_ms === null});
    return notice_ms;
  }

  /** The TPU of a name, with all of its VMs; or, for the name of a VM, its TPU with only this VM. */
  #targetOf(name: string): {tpu: Tpu<S>; vms: VmSpec[]} {
    for (const tpu of this.list()) {
      if (tpu.state === 'DELETING') continue;
      const vms = this.#api.vmsOf(tpu);
      const named = tpu.name === name ? vms : vms.filter(vm => vm.name === name);
      if (named.length > 0) return {tpu, vms: named};
    }
    throw badFault(`Unknown TPU "${name}"`);
  }

  /** Moves a TPU that still exists to a state that ends after a time; null for a state that stays. */
  #move(tpu: Tpu<S>, state: TpuState, ms: number | null = null): void {
    if (this.#rows.find(tpu.zone, tpu.name)?.id !== tpu.id) return;
    const next = {...tpu, state, due_at: ms === null ? null : Date.now() + ms};
    this.#rows.update(next);
    this.#schedule(next);
  }

  #schedule(tpu: Tpu<S>): void {
    this.#at(tpu.id, tpu.due_at, () => this.#advance(tpu));
  }

  #at(key: string, due_at: number | null, act: () => Promise<void>): void {
    this.#timers.set(key, due_at, () => act().catch(this.#options.trouble));
  }

  /** An id whose addresses no other TPU has. */
  #newId(): string {
    const taken = new Set(this.list().map(({id}) => subnetOf(id)));
    const draw = () => (BigInt(randomInt(1, 2 ** 31)) * 2n ** 31n + BigInt(randomInt(2 ** 31))).toString();
    let id = draw();
    while (taken.has(subnetOf(id))) id = draw();
    return id;
  }

  /** Time at which a create that begins now ends in the zone; null if a fault keeps it open. */
  #creationEnd(zone: string): number | null {
    const {faults, create_ms} = this.#options;
    if (faults.zone('endless-create', zone) !== undefined) return null;
    const slow_s = faults.zone('slow-create', zone) ?? faults.zone('late-failure', zone);
    return Date.now() + (slow_s === undefined ? create_ms : slow_s * 1000);
  }

  async #advance(tpu: Tpu<S>): Promise<void> {
    switch (tpu.state) {
      case 'WAITING':
        return this.#provide(tpu);
      case 'CREATING':
        return this.#finishCreate(tpu);
      case 'RUNNING':
        // After a notice, or at the end of the run duration.
        return this.#preempt(tpu);
      case 'STOPPING':
        return tpu.spec.deletes_itself ? this.#remove(tpu) : this.#move(tpu, 'STOPPED');
      case 'DELETING':
        return this.#remove(tpu);
      case 'STOPPED':
        return;
    }
  }

  /** A waiting TPU gets its capacity, keeps waiting, or is removed when its time is up. */
  #provide(tpu: Tpu<S>): void {
    const {faults, create_ms, step_ms} = this.#options;
    if (faults.zone('stockout', tpu.zone) === undefined) this.#move(tpu, 'CREATING', create_ms);
    else if (Date.now() < Date.parse(tpu.created_at) + (tpu.spec.wait_ms ?? 0))
      this.#move(tpu, 'WAITING', step_ms);
    else this.#fail(tpu, 'expired');
  }

  async #finishCreate(tpu: Tpu<S>): Promise<void> {
    const {database, faults} = this.#options;
    if (faults.zone('late-failure', tpu.zone) !== undefined) return this.#fail(tpu, 'internal');
    if (faults.zone('stockout', tpu.zone) !== undefined) return this.#fail(tpu, 'stockout');
    database.transaction(() => {
      this.#move(tpu, 'RUNNING', tpu.spec.run_ms ?? null);
      this.operations.end(tpu, 'create');
      this.onChange(tpu, {kind: 'ready'});
    });
    const vms = this.#api.vmsOf(tpu);
    // Under the fault `slow-boot`, the VM of the last host boots later.
    const slow_s = faults.zone('slow-boot', tpu.zone);
    const late = slow_s === undefined ? [] : vms.splice(-1);
    if (slow_s !== undefined) this.#at(lateBoot(tpu), Date.now() + slow_s * 1000, () => this.#boot(late));
    await this.#boot(vms);
  }

  #fail(tpu: Tpu<S>, cause: 'expired' | 'internal' | 'stockout'): void {
    const error = this.#api.failures[cause](tpu, this.#options.project);
    this.#options.database.transaction(() => {
      this.operations.end(tpu, 'create', error);
      this.#rows.delete(tpu);
      this.onChange(tpu, {kind: 'failed', error});
    });
  }

  async #preempt(tpu: Tpu<S>): Promise<void> {
    this.#options.database.transaction(() => {
      if (this.#api.kind === 'instances') return this.#move(tpu, 'STOPPING', this.#options.delete_ms);
      this.operations.end(tpu, 'create');
      this.#move(tpu, 'STOPPED');
      this.onChange(tpu, {kind: 'preempted'});
    });
    await this.#stop(tpu);
  }

  /** Destroys the VMs and their disks, and then ends the operations. */
  async #remove(tpu: Tpu<S>): Promise<void> {
    this.#timers.clear(tpu.id);
    this.#timers.clear(lateBoot(tpu));
    await Promise.all(this.#api.vmsOf(tpu).map(({id}) => this.#options.fleet.destroy(id)));
    // A fault may have removed the TPU already.
    if (this.#rows.find(tpu.zone, tpu.name)?.id !== tpu.id) return;
    this.#options.database.transaction(() => {
      this.operations.end(tpu, 'create', this.#api.failures.gone(tpu, this.#options.project));
      this.operations.end(tpu, 'delete');
      this.#rows.delete(tpu);
      this.onChange(tpu, {kind: 'gone'});
    });
  }

  async #boot(vms: VmSpec[]): Promise<void> {
    await Promise.all(vms.map(vm => this.#options.fleet.boot(vm)));
  }

  async #stop(tpu: Tpu<S>): Promise<void> {
    this.#timers.clear(lateBoot(tpu));
    await Promise.all(this.#api.vmsOf(tpu).map(({id}) => this.#options.fleet.stop(id)));
  }
}

/** Key of the timer of a late boot. */
function lateBoot({id}: Pick<Tpu, 'id'>): string {
  return `boot of ${id}`;
}

/** First three bytes of the addresses of a slice: 127.1.0 to 127.254.255. */
export function subnetOf(id: string): string {
  const number = Number(BigInt(id) % (254n * 256n));
  return `127.${1 + Math.floor(number / 256)}.${number % 256}`;
}
