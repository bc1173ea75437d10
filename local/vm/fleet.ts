import {chmodSync, mkdirSync, readdirSync, rmSync, writeFileSync} from 'node:fs';
import {rm} from 'node:fs/promises';
import {homedir} from 'node:os';
import {join} from 'node:path';
import type {CloudDatabase} from '../database.ts';
import type {TpuNode} from '../tpu/nodes.ts';
import {Machine} from './machine.ts';
import {MetadataServer} from './metadata.ts';

export type FleetOptions = {
  dir: string;
  project: string;
  database: CloudDatabase;
  /** What a VM sees as the network: where storage and the rest are. */
  network: () => Record<string, string>;
  log: (node: string, text: string) => void;
  trouble: (error: unknown) => void;
};

type Vm = {machine: Machine; metadata: MetadataServer};

/** The VMs of the nodes, by node id: a disk each, a log per boot, a metadata server and a process group while switched on. */
export class Fleet {
  readonly #options: FleetOptions;
  readonly #vms = new Map<string, Vm>();
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

  /** Switches the VM of a node on; its disk is as the last boot left it. */
  async boot(node: TpuNode): Promise<void> {
    const {id, name, spec} = node;
    if (this.#vms.get(id)?.machine.isOn) return;
    const disk = this.#disk(id);
    const script = join(disk, 'startup-script');
    mkdirSync(join(disk, 'tmp'), {recursive: true});
    writeFileSync(script, spec.metadata['startup-script'] ?? '#!/bin/sh\n');
    chmodSync(script, 0o755);
    const metadata = new MetadataServer(node, this.#options.project);
    await metadata.start(this.#options.trouble);
    const log_file = join(this.#logs, `${name}-${this.#countBoot(name)}.log`);
    const machine = new Machine({script, cwd: disk, env: this.#env(disk, metadata.port), log_file});
    this.#vms.set(id, {machine, metadata});
    this.#options.log(name, `booted; its console is ${log_file}`);
    void machine.scriptEnd.then(end => this.#options.log(name, `the startup script ended (${end})`));
    void machine.off.then(() => {
      this.#options.log(name, 'switched off');
      return metadata.stop();
    });
  }

  isOn(id: string): boolean {
    return this.#vms.get(id)?.machine.isOn ?? false;
  }

  pid(id: string): number | undefined {
    const vm = this.#vms.get(id);
    return vm?.machine.isOn ? vm.machine.pid : undefined;
  }

  /** What a VM hears of a preemption that comes: its metadata says so, and its operating system begins to shut down. */
  giveNotice(id: string): void {
    const vm = this.#vms.get(id);
    vm?.metadata.announcePreemption();
    vm?.machine.terminate();
  }

  async stop(id: string): Promise<void> {
    const vm = this.#vms.get(id);
    if (!vm) return;
    await vm.machine.kill();
    await vm.metadata.stop();
    this.#vms.delete(id);
  }

  /** Switches off for good: the disk is wiped, the logs stay. */
  async destroy(id: string): Promise<void> {
    await this.stop(id);
    await rm(this.#disk(id), {recursive: true, force: true, maxRetries: 5});
  }

  async stopAll(): Promise<void> {
    await Promise.all([...this.#vms.keys()].map(id => this.stop(id)));
  }

  /** Wipes the disks of nodes that are gone. */
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

  #env(disk: string, metadata_port: number): Record<string, string> {
    const cache = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
    return {
      ...inherited(process.env),
      HOME: disk,
      TMPDIR: join(disk, 'tmp'),
      GLEANER_HOME: disk,
      UV_CACHE_DIR: join(cache, 'gleaner', 'uv'),
      GCE_METADATA_HOST: `127.0.0.1:${metadata_port}`,
      GCE_METADATA_IP: `127.0.0.1:${metadata_port}`,
      GCE_METADATA_ROOT: `127.0.0.1:${metadata_port}`,
      ...this.#options.network(),
    };
  }
}

/** A VM has its own environment. From ours it takes only what this machine's network and package sources need. */
const passed = [
  /^(PATH|LANG|LC_.*|TZ)$/,
  /^(PIP|UV)_/,
  /^(SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|HTTPLIB2_CA_CERTS|GRPC_DEFAULT_SSL_ROOTS_FILE_PATH)$/,
  /^(https?|all|no)_proxy$/i,
];

function inherited(env: NodeJS.ProcessEnv): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [key, value] of Object.entries(env)) {
    if (value !== undefined && passed.some(pattern => pattern.test(key))) kept[key] = value;
  }
  const hasProxy = Object.keys(kept).some(key => /^(https?|all)_proxy$/i.test(key));
  if (hasProxy) {
    const direct = [kept.no_proxy ?? kept.NO_PROXY, '127.0.0.1', 'localhost'].filter(Boolean).join(',');
    kept.no_proxy = direct;
    kept.NO_PROXY = direct;
  }
  return kept;
}
