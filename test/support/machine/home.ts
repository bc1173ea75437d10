/** A local cloud as a person runs it, `gleaner local up`, in a process of its own that a test can kill. */

import {type ChildProcess, execFileSync, spawn} from 'node:child_process';
import {mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {dirname, join} from 'node:path';
import {createInterface} from 'node:readline';
import {setTimeout as sleep} from 'node:timers/promises';
import type {Report} from '../../../cli/run/verify.ts';
import {running, runningCloud} from '../../../client/connection/connect.ts';
import type {Connection} from '../../../client/connection/connection.ts';
import {type RunState, viewRun} from '../../../client/views/run-state.ts';
import {tokenFile} from '../../../emulator/http/guard.ts';
import {secretFile} from '../../../emulator/secrets.ts';
import {openBus} from '../../../shared/google/bus.ts';
import {openObjects} from '../../../shared/google/objects.ts';
import {openStore} from '../../../shared/open-store.ts';
import type {Document, Objects, Store} from '../../../shared/ports/ports.ts';
import {cloudState} from './a-cloud.ts';
import * as command from './command.ts';
import {GLEANER} from './process.ts';
import {until} from './until.ts';

/** Variables of a cloud that ends a silent worker early. A killed VM and a vanished node are silent. */
export const FAST = {GLEANER_LEASE_S: '8', GLEANER_SILENT_S: '12'};

export type Ready = {
  ready: true;
  url: string;
  project: string;
  bucket: string;
  dir: string;
  dashboard: string;
};
export type LocalState = {
  tpus: {name: string; state: string}[];
  queued_resources: {name: string; state: string}[];
  deliveries_pending: number;
  dead_letters: unknown;
  pubsub_endpoint: string;
  firestore_endpoint?: string;
};

/** Runs `gleaner ARGS` to its end. */
export function gleaner(
  args: string[],
  options: {env?: Record<string, string>; cwd?: string} = {},
): Promise<{code: number; stdout: string; stderr: string}> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [GLEANER, ...args], {
      env: {...process.env, ...options.env},
      cwd: options.cwd,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', chunk => (stdout += chunk));
    child.stderr.on('data', chunk => (stderr += chunk));
    child.once('error', reject);
    child.once('close', code => resolve({code: code ?? 1, stdout, stderr}));
  });
}

/** The first start of a machine makes and packs the environment of the workers. */
const START_S = 1200;

export class TestHome {
  readonly dir: string;
  readonly workers: number;
  ready!: Ready;
  objects!: Objects;
  readonly #env: NodeJS.ProcessEnv;
  /** Further options of `gleaner local up`. */
  readonly #flags: string[];
  #connection!: Connection;
  #child: ChildProcess | undefined;
  #store: Store | undefined;

  private constructor(dir: string, workers: number, env: NodeJS.ProcessEnv, flags: string[]) {
    this.dir = dir;
    this.workers = workers;
    this.#flags = flags;
    this.#env = {...process.env, ...env};
  }

  /** Starts a cloud with `flags` on top of the usual options of `local up`, and with secrets by their names. */
  static async start(
    workers = 2,
    env: NodeJS.ProcessEnv = {},
    flags: string[] = [],
    secrets: Record<string, string> = {},
  ): Promise<TestHome> {
    const home = new TestHome(mkdtempSync(join(tmpdir(), 'gleaner-e2e-')), workers, env, flags);
    for (const [name, text] of Object.entries(secrets)) {
      const file = secretFile(home.dir, name, '1');
      mkdirSync(dirname(file), {recursive: true, mode: 0o700});
      writeFileSync(file, text, {mode: 0o600});
    }
    await home.up();
    return home;
  }

  async up(): Promise<void> {
    const args = [
      'local',
      'up',
      '--port',
      '0',
      '--dir',
      this.dir,
      '--workers',
      String(this.workers),
      '--json',
      '--quiet',
      ...this.#flags,
    ];
    const child = spawn(process.execPath, [GLEANER, ...args], {
      env: this.#env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    let said = '';
    child.stderr.on('data', chunk => (said += chunk));
    const first = new Promise<string>((resolve, reject) => {
      createInterface({input: child.stdout}).once('line', resolve);
      child.once('exit', code => reject(new Error(`local up ended with ${code}: ${said}`)));
    });
    const late = sleep(START_S * 1000, undefined, {ref: false}).then(() => {
      throw new Error(`local up is not ready after ${START_S} s: ${said}`);
    });
    this.ready = JSON.parse(await Promise.race([first, late]));
    this.#connection = running(await runningCloud({dir: this.dir}));
    const {project, bucket, storage_endpoint: endpoint, token} = this.#connection;
    this.objects = openObjects({project, bucket, endpoint, token});
  }

  get token(): string {
    return readFileSync(tokenFile(this.dir), 'utf8');
  }

  get pid(): number {
    if (this.#child?.pid === undefined) throw new Error('the cloud does not run');
    return this.#child.pid;
  }

  /** `kill -9` of the process that is the cloud. */
  killHard(): Promise<void> {
    return this.#end('SIGKILL');
  }

  stop(): Promise<void> {
    return this.#end('SIGTERM');
  }

  async #end(how: NodeJS.Signals): Promise<void> {
    await this.#store?.close();
    this.#store = undefined;
    const child = this.#child;
    if (child && child.exitCode === null) {
      const gone = new Promise(resolve => child.once('exit', resolve));
      child.kill(how);
      await gone;
    }
    this.#child = undefined;
  }

  async remove(): Promise<void> {
    await this.stop();
    rmSync(this.dir, {recursive: true, force: true});
  }

  async drop(name: string, content: string | Buffer): Promise<void> {
    await this.objects.create(name, Buffer.from(content));
  }

  async publish(message: Document | string): Promise<void> {
    if (typeof message !== 'string') {
      await openBus({project: this.ready.project, token: this.token}).publish('control', message);
      return;
    }
    const response = await fetch(
      `${this.ready.url}/v1/projects/${this.ready.project}/topics/control:publish`,
      {
        method: 'POST',
        headers: {'content-type': 'application/json', authorization: `Bearer ${this.token}`},
        body: JSON.stringify({messages: [{data: Buffer.from(message).toString('base64')}]}),
      },
    );
    if (!response.ok) throw new Error(`publish answered ${response.status}`);
  }

  state(): Promise<LocalState> {
    return cloudState({url: this.ready.url, token: this.token});
  }

  async fault(kind: string, target: string): Promise<void> {
    const response = await fetch(`${this.ready.url}/_local/faults`, {
      method: 'POST',
      headers: {'content-type': 'application/json', authorization: `Bearer ${this.token}`},
      body: JSON.stringify({kind, target}),
    });
    if (!response.ok) throw new Error(await response.text());
  }

  /** Reads documents in this process, with one client of the store until the cloud ends. */
  read<T>(ask: (store: Store) => Promise<T>): Promise<T> {
    this.#store ??= openStore(this.#connection);
    return ask(this.#store);
  }

  /** The view of `gleaner status RUN`. */
  view(run: string): Promise<RunState | undefined> {
    return this.read(store => viewRun(store, run));
  }

  /** Process groups of the VMs. The command of a VM names the folder of the cloud; the command of an agent does not. */
  vmGroups(): number[] {
    return processes().flatMap(({args, pgid}) => (args.includes(`${this.dir}/vms/`) ? [pgid] : []));
  }

  async verify(run: string): Promise<Report> {
    const {stdout, stderr} = await command.gleaner(['verify', run, '--json', '--dir', this.dir]);
    if (!stdout.trim()) throw new Error(`verify said nothing: ${stderr}`);
    return JSON.parse(stdout);
  }

  readonly until = until;

  runEnds(run: string): Promise<RunState | undefined> {
    return until(`the end of ${run}`, () => this.view(run), hasEnded);
  }
}

/** True for a run that is over and whose workers are gone. */
export function hasEnded(view: RunState | undefined): boolean {
  return view !== undefined && !['active', 'paused'].includes(view.run.status) && view.workers.length === 0;
}

/** Kills a process or a group. Returns 1 for a delivered signal, 0 for a process that has ended. */
export function signal(pid: number): number {
  try {
    process.kill(pid, 'SIGKILL');
    return 1;
  } catch {
    return 0;
  }
}

export type Process = {pid: number; ppid: number; pgid: number; args: string};

export function processes(): Process[] {
  const table = execFileSync('ps', ['-eo', 'pid=,ppid=,pgid=,args='], {encoding: 'utf8'});
  return table.split('\n').flatMap(line => {
    const match = /^\s*(\d+)\s+(\d+)\s+(\d+)\s+(.*)$/.exec(line);
    return match
      ? [{pid: Number(match[1]), ppid: Number(match[2]), pgid: Number(match[3]), args: match[4] ?? ''}]
      : [];
  });
}

/** Two layers, because every layer takes seconds to compile; and small shards, so that a stream of some hundred records has several. */
export const SPEC = JSON.stringify({layers: '0-1', shard_size_gb: 0.0002});

/** Records of `words` words each: long enough to fill several shards, and all different. */
export function texts(count: number, seed: string, words = 15): string {
  return Array.from({length: count}, (_, index) => {
    const text = Array.from({length: words}, (_, word) => `${seed}${(index * 31 + word * 17) % 97}`);
    return `${JSON.stringify({text: `${index} ${text.join(' ')}`})}\n`;
  }).join('');
}
