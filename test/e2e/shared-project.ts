/** One local cloud with several deployments, as teams share one project. The cloud runs in the process of the test. */

import {mkdtempSync, readFileSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {DatabaseSync} from 'node:sqlite';
import {deployLocally, type LocalDeployment} from '../../cli/local/local-deployment.ts';
import {type Report, verifyRun} from '../../cli/run/verify.ts';
import {running} from '../../client/connection/connect.ts';
import {type RunState, viewRun} from '../../client/views/run-state.ts';
import type {Deployment, LocalCloud} from '../../emulator/cloud.ts';
import {nameIn} from '../../shared/domain/deployment.ts';
import {openBus} from '../../shared/google/bus.ts';
import {openObjects} from '../../shared/google/objects.ts';
import {openStore} from '../../shared/open-store.ts';
import type {Bus, Document, Objects} from '../../shared/ports/ports.ts';
import {cloudState} from '../support/machine/a-cloud.ts';
import {FAST, hasEnded, type LocalState, processes} from '../support/machine/home.ts';
import {until} from '../support/machine/until.ts';
import {type Change, startTpuRecorder, type TpuRecorder} from './tpu-recorder.ts';

/** Documents of a store by their path. */
export type Documents = Record<string, Document>;

/** An operation of Cloud TPU, as the local cloud stores it. */
export type StoredOperation = {
  name: string;
  target: string;
  verb: Change['verb'];
  created_at: string;
  ended_at: string | null;
  error: string | null;
};

export type State = Omit<LocalState, 'tpus'> & {
  tpus: {name: string; state: string; vms: {pid: number | null}[]}[];
};

export class SharedProject {
  readonly #dir: string;
  #local!: LocalDeployment;
  readonly #recorders = new Map<string, TpuRecorder>();
  readonly deployments: TeamDeployment[] = [];

  private constructor(dir: string) {
    this.#dir = dir;
  }

  static async start(deployments: Pick<Deployment, 'name' | 'bucket'>[]): Promise<SharedProject> {
    const project = new SharedProject(mkdtempSync(join(tmpdir(), 'gleaner-e2e-')));
    try {
      await project.#up(deployments);
      return project;
    } catch (error) {
      await project.remove();
      throw error;
    }
  }

  async #up(deployments: Pick<Deployment, 'name' | 'bucket'>[]): Promise<void> {
    let url = '';
    for (const {name} of deployments) this.#recorders.set(name, await startTpuRecorder(() => url));
    this.#local = await deployLocally({
      ...{dir: this.#dir, port: 0, workers: 1, deployments},
      function_env: (where, {name}) => {
        url = where.url;
        return {...FAST, GLEANER_TPU_ENDPOINT: this.#recorders.get(name)?.url ?? ''};
      },
      stopped: new Promise(() => {}),
      begin: () => {},
      say: () => {},
    });
    for (const deployment of this.cloud.deployments)
      this.deployments.push(
        new TeamDeployment(this.cloud, deployment, this.#recorders.get(deployment.name)?.changes ?? []),
      );
  }

  get cloud(): LocalCloud {
    return this.#local.cloud;
  }

  async remove(): Promise<void> {
    await this.#local?.close();
    for (const recorder of this.#recorders.values()) await recorder.close();
    rmSync(this.#dir, {recursive: true, force: true});
  }

  state(): Promise<State> {
    return cloudState(this.cloud);
  }

  /** Calls an API of the cloud as a person of the project. */
  async call(method: string, path: string, body: object = {}): Promise<{name: string}> {
    const response = await fetch(this.cloud.url + path, {
      method,
      headers: {'content-type': 'application/json', authorization: `Bearer ${this.cloud.token}`},
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}`);
    return (await response.json()) as {name: string};
  }

  /** Every operation that Cloud TPU ever began. */
  operations(): StoredOperation[] {
    const database = new DatabaseSync(join(this.#dir, 'cloud.db'), {readOnly: true});
    try {
      const sql = `SELECT *, ? || zone || '/operations/' || name AS name FROM operations WHERE api = 'tpu' ORDER BY created_at`;
      const place = `projects/${this.cloud.project}/locations/`;
      return database.prepare(sql).all(place) as unknown as StoredOperation[];
    } finally {
      database.close();
    }
  }

  /** Hours from each create of these nodes to the end of the next delete; a vanished node counts until its next create. */
  hoursOf(nodes: readonly string[]): number {
    let hours = 0;
    const alive = new Map<string, number>();
    for (const {target, verb, created_at, ended_at, error} of this.operations()) {
      if (!nodes.includes(target.split('/').at(-1) ?? '') || error !== null) continue;
      const end = Date.parse((verb === 'delete' ? ended_at : null) ?? created_at);
      hours += (end - (alive.get(target) ?? end)) / 3_600_000;
      if (verb === 'create') alive.set(target, Date.parse(created_at));
      else alive.delete(target);
    }
    return hours;
  }

  /** Identity token of the VM of a node for an audience, from the metadata server of the VM. */
  async identityOf(node: string, audience: string): Promise<string> {
    const {tpus} = await this.state();
    const pid = tpus.find(({name}) => name === node)?.vms[0]?.pid;
    if (!pid) throw new Error(`The VM of ${node} is off`);
    const [, host] = /(?:^|\0)GCE_METADATA_HOST=([^\0]+)/.exec(environmentOf(pid)) ?? [];
    const path = '/computeMetadata/v1/instance/service-accounts/default/identity';
    const query = new URLSearchParams({audience, format: 'full'});
    const answer = await fetch(`http://${host}${path}?${query}`, {headers: {'metadata-flavor': 'Google'}});
    if (!answer.ok) throw new Error(`The metadata server of ${node} answered ${answer.status}`);
    return answer.text();
  }
}

/** A deployment in a shared project. */
export class TeamDeployment {
  readonly name: string;
  readonly bucket: string;
  /** Creates and deletes of nodes that the functions of this deployment asked for. */
  readonly changes: readonly Change[];
  readonly objects: Objects;
  readonly worker_api: string;
  /** Path of the Scheduler job. */
  readonly job: string;
  readonly #cloud: LocalCloud;
  readonly #store_file: string;
  readonly #bus: Bus;

  constructor(cloud: LocalCloud, {name, bucket, store_file}: Deployment, changes: readonly Change[]) {
    const {project, url, token} = cloud;
    this.name = name;
    this.bucket = bucket;
    this.changes = changes;
    this.#cloud = cloud;
    this.#store_file = store_file;
    this.objects = openObjects({project, bucket, endpoint: url, token});
    this.worker_api = `${url}/functions/${nameIn(name, 'worker-api')}`;
    this.job = `/v1/projects/${project}/locations/us-central1/jobs/${name}-tick`;
    this.#bus = openBus({project, deployment: name, token});
  }

  async drop(name: string, content: string): Promise<void> {
    await this.objects.create(name, Buffer.from(content));
  }

  /** Publishes a message on the topic `control` of this deployment. Returns the id of the message. */
  publish(message: Document): Promise<string> {
    return this.#bus.publish('control', message);
  }

  async view(run: string): Promise<RunState | undefined> {
    const store = openStore({store: `sqlite:${this.#store_file}`, project: this.#cloud.project});
    try {
      return await viewRun(store, run);
    } finally {
      await store.close();
    }
  }

  runEnds(run: string): Promise<RunState | undefined> {
    return until(`the end of ${run}`, () => this.view(run), hasEnded);
  }

  verify(run: string): Promise<Report> {
    const {bucket} = this;
    return verifyRun({...running({...this.#cloud, bucket}), deployment: this.name}, run);
  }

  /** Reads the file of the store itself, because the port lists no collections. */
  documents(): Documents {
    const database = new DatabaseSync(this.#store_file, {readOnly: true});
    try {
      const rows = database.prepare('SELECT collection, id, data FROM documents ORDER BY 1, 2').all();
      return Object.fromEntries(
        rows.map(({collection, id, data}) => [`${collection}/${id}`, JSON.parse(String(data))]),
      );
    } finally {
      database.close();
    }
  }

  /** Deletes the store, and kills the process of the functions, which has the store open. The cloud starts the process again. */
  loseStore(): void {
    for (const suffix of ['', '-wal', '-shm']) rmSync(this.#store_file + suffix, {force: true});
    const variable = `GLEANER_DEPLOYMENT=${this.name}`;
    const host = processes().find(
      ({pid, ppid, args}) =>
        ppid === process.pid &&
        args.includes('function-host') &&
        environmentOf(pid).split('\0').includes(variable),
    );
    if (!host) throw new Error(`The functions of ${this.name} do not run`);
    process.kill(host.pid, 'SIGKILL');
  }
}

/** Variables that a process started with, as NAME=VALUE with NUL between them. */
function environmentOf(pid: number): string {
  return readFileSync(`/proc/${pid}/environ`, 'utf8');
}
