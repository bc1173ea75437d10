import {chmodSync, mkdirSync, readdirSync, rmSync, writeFileSync} from 'node:fs';
import {rm} from 'node:fs/promises';
import {join} from 'node:path';
import type {Identities} from '../http/identity.ts';
import type {CloudDatabase} from '../state/database.ts';
import {Machine} from './machine.ts';
import {MetadataServer} from './metadata.ts';
import {vmEnvironment} from './vm-environment.ts';
import type {VmSpec} from './vm-spec.ts';

export type FleetOptions = {
  dir: string;
  project: string;
  database: CloudDatabase;
  /** Token of the cloud. */
  token: string;
  identities: Identities;
  /** Variables with the addresses of the cloud. */
  network: () => Record<string, string>;
  log: (node: string, text: string) => void;
  trouble: (error: unknown) => void;
};

type Vm = {
  machine: Machine;
  metadata: MetadataServer;
  /** Until when the VM cannot reach worker-api, in milliseconds since 1970. */
  cut_until: number;
};

/** VMs by id. Each VM has a disk and a log for each boot; a running VM has a metadata server and a process group. */
export class Fleet {
  readonly #options: FleetOptions;
  readonly #vms = new Map<string, Vm>();
  /** Last operation of each VM. Operations of a VM run one after another, so a stop waits for a boot. */
  readonly #turns = new Map<string, Promise<void>>();
  #isClosed = false;
  readonly #logs: string;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.#logs = join(options.dir, 'logs');
    mkdirSync(this.#logs, {recursive: true});
    mkdirSync(join(options.dir, 'vms'), {recursive: true});
  }

  #disk(id: string): string {
    return join(this.#options.dir, 'vms', id);
  }

  /** Boots a VM on the disk of its last boot. */
  boot(vm: VmSpec): Promise<void> {
    return this.#inTurn(vm.id, () => this.#boot(vm));
  }

  async #boot(vm: VmSpec): Promise<void> {
    const {id, name, attributes} = vm;
    if (this.#isClosed || this.#vms.get(id)?.machine.isOn) return;
    const disk = this.#disk(id);
    const script = join(disk, 'startup-script');
    mkdirSync(join(disk, 'tmp'), {recursive: true});
    writeFileSync(script, attributes['startup-script'] ?? '#!/bin/sh\n');
    chmodSync(script, 0o755);
    const metadata = new MetadataServer(vm, this.#options);
    await metadata.start(this.#options.trouble);
    const log_file = join(this.#logs, `${name}-${this.#countBoot(name)}.log`);
    const network = this.#options.network();
    const env = {...vmEnvironment({disk, metadata_host: metadata.host, network}), ...vm.env};
    const machine = new Machine({script, cwd: disk, env, log_file});
    this.#vms.set(id, {machine, metadata, cut_until: 0});
    this.#options.log(name, `booted; its console is ${log_file}`);
    void machine.scriptEnd.then(end => this.#options.log(name, `the startup script ended (${end})`));
    void machine.off.then(() => {
      this.#options.log(name, 'switched off');
      return metadata.stop();
    });
  }

  /** Number of the process group; null while the VM is off. */
  pid(id: string): number | null {
    const vm = this.#vms.get(id);
    return (vm?.machine.isOn && vm.machine.pid) || null;
  }

  /** Announces a preemption to a VM: in its metadata, and by SIGTERM unless the signal follows later. */
  giveNotice(id: string, {signal} = {signal: true}): void {
    const vm = this.#vms.get(id);
    vm?.metadata.announcePreemption();
    if (signal) vm?.machine.terminate();
  }

  /** Announces a maintenance that stops the VM, only in its metadata. */
  announceMaintenance(id: string): void {
    this.#vms.get(id)?.metadata.announceMaintenance();
  }

  stop(id: string): Promise<void> {
    return this.#inTurn(id, () => this.#stop(id));
  }

  async #stop(id: string): Promise<void> {
    const vm = this.#vms.get(id);
    await vm?.machine.kill();
    await vm?.metadata.stop();
    this.#vms.delete(id);
  }

  /** Stops a VM and boots it again on its disk. */
  restart(vm: VmSpec): Promise<void> {
    return this.#inTurn(vm.id, async () => {
      await this.#stop(vm.id);
      await this.#boot(vm);
    });
  }

  /** Blocks the requests of a VM to worker-api for a time. */
  cut(id: string, duration_ms: number): void {
    const vm = this.#vms.get(id);
    if (vm) vm.cut_until = Date.now() + duration_ms;
  }

  /** Milliseconds until the VM reaches worker-api again. */
  cutFor(id: string): number {
    return Math.max(0, (this.#vms.get(id)?.cut_until ?? 0) - Date.now());
  }

  /** Stops a VM and removes its disk. The logs stay. */
  async destroy(id: string): Promise<void> {
    await this.stop(id);
    await rm(this.#disk(id), {recursive: true, force: true, maxRetries: 5});
  }

  /** Stops every VM. Later boots have no effect. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#vms.keys(), ...this.#turns.keys()].map(id => this.stop(id)));
  }

  #inTurn(id: string, work: () => Promise<void>): Promise<void> {
    const turn = (this.#turns.get(id) ?? Promise.resolve()).catch(() => {}).then(work);
    this.#turns.set(id, turn);
    return turn.finally(() => {
      if (this.#turns.get(id) === turn) this.#turns.delete(id);
    });
  }

  /** Removes the disks of all VMs except `kept`. */
  async sweepDisks(kept: string[]): Promise<void> {
    const vms = join(this.#options.dir, 'vms');
    for (const id of readdirSync(vms)) {
      if (!kept.includes(id)) rmSync(join(vms, id), {recursive: true, force: true});
    }
  }

  #countBoot(name: string): number {
    const row = this.#options.database.get<{count: number}>(
      `INSERT INTO boots VALUES (?, 1) ON CONFLICT (node) DO UPDATE SET count = count + 1 RETURNING count`,
      name,
    );
    return row?.count ?? 1;
  }
}
