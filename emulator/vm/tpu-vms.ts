import {randomInt} from 'node:crypto';
import type {Faults, VmFault} from '../faults.ts';
import {Timers} from '../timers.ts';
import type {VmSpec} from './vm-spec.ts';
import type {Fleet} from './vms.ts';

/** TPU of any service: a node or an instance. `due_at`: time of its next state in milliseconds since 1970; null without one. */
type Tpu = {id: string; zone: string; due_at: number | null};

export type TpuVmsOptions = {
  faults: Faults;
  fleet: Fleet;
  create_ms: number;
  trouble: (error: unknown) => void;
};

/** The VMs and the timers of the TPUs of one service. */
export class TpuVms<T extends Tpu> {
  readonly #options: TpuVmsOptions;
  readonly #timers = new Timers();
  readonly #vmsOf: (tpu: T) => VmSpec[];
  /** Moves a TPU to its next state. */
  readonly #advance: (tpu: T) => Promise<void>;

  constructor(options: TpuVmsOptions, vmsOf: (tpu: T) => VmSpec[], advance: (tpu: T) => Promise<void>) {
    this.#options = options;
    this.#vmsOf = vmsOf;
    this.#advance = advance;
  }

  /** Advances the TPU when it is due. Replaces its earlier time. */
  schedule(tpu: T): void {
    this.#at(tpu.id, tpu.due_at, () => this.#advance(tpu));
  }

  end(): void {
    this.#timers.clearAll();
  }

  /** Time at which a create that begins now ends in the zone; null where a fault keeps it open. */
  creationEnd({zone}: Pick<Tpu, 'zone'>): number | null {
    const {faults, create_ms} = this.#options;
    if (faults.zone('endless-create', zone) !== undefined) return null;
    const slow_s = faults.zone('slow-create', zone) ?? faults.zone('late-failure', zone);
    return Date.now() + (slow_s === undefined ? create_ms : slow_s * 1000);
  }

  async boot(tpu: T): Promise<void> {
    await this.#boot(this.#vmsOf(tpu));
  }

  /** Boots the VMs of a new TPU. Under the fault `slow-boot`, that of its last host boots later. */
  async bootNew(tpu: T): Promise<void> {
    const vms = this.#vmsOf(tpu);
    const slow_s = this.#options.faults.zone('slow-boot', tpu.zone);
    const late = slow_s === undefined ? [] : vms.splice(-1);
    if (slow_s !== undefined) this.#at(lateBoot(tpu), Date.now() + slow_s * 1000, () => this.#boot(late));
    await this.#boot(vms);
  }

  async stop(tpu: T): Promise<void> {
    this.#timers.clear(lateBoot(tpu));
    await Promise.all(this.#vmsOf(tpu).map(({id}) => this.#options.fleet.stop(id)));
  }

  /** Stops the VMs and removes their disks. */
  async destroy(tpu: T): Promise<void> {
    this.#timers.clear(lateBoot(tpu));
    await Promise.all(this.#vmsOf(tpu).map(({id}) => this.#options.fleet.destroy(id)));
  }

  /** Announces the end of a TPU to its VMs. `signal`: by SIGTERM too, where it does not follow later. */
  announce(kind: 'preempt-with-notice' | 'maintenance', vms: VmSpec[], {signal} = {signal: true}): void {
    const {fleet} = this.#options;
    for (const {id} of vms) {
      if (kind === 'maintenance') fleet.announceMaintenance(id);
      else fleet.giveNotice(id, {signal});
    }
  }

  /** Injects a fault into VMs whose TPU stays as it is. `name`: of the target; `stays`: the TPU with its state. */
  async inflict(kind: VmFault, vms: VmSpec[], {name, cut_s, stays}: VmTarget): Promise<string> {
    const {fleet} = this.#options;
    switch (kind) {
      case 'dead':
        await Promise.all(vms.map(({id}) => fleet.stop(id)));
        return `stopped the VM of ${name}: ${stays}`;
      case 'restart':
        await Promise.all(vms.map(vm => fleet.restart(vm)));
        return `restarted the VM of ${name} on its disk: ${stays}`;
      case 'cut':
        for (const {id} of vms) fleet.cut(id, cut_s * 1000);
        return `cut ${name} off: worker-api hears nothing of it for ${cut_s} s`;
    }
  }

  #at(key: string, due_at: number | null, act: () => Promise<void>): void {
    this.#timers.set(key, due_at, () => act().catch(this.#options.trouble));
  }

  async #boot(vms: VmSpec[]): Promise<void> {
    await Promise.all(vms.map(vm => this.#options.fleet.boot(vm)));
  }
}

type VmTarget = {name: string; cut_s: number; stays: string};

/** Key of the timer of a late boot. */
function lateBoot({id}: Tpu): string {
  return `boot of ${id}`;
}

/** An int64 as a string. */
export function newTpuId(): string {
  return (BigInt(randomInt(1, 2 ** 31)) * 2n ** 31n + BigInt(randomInt(2 ** 31))).toString();
}
