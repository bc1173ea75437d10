/** A control plane over a store file: counted ports, a clock that scenes step, and messages that scenes deliver. */

import type {TaskMessage} from '../../shared/contracts/messages/schemas.ts';
import type {Deps} from '../../shared/control-plane/deps.ts';
import {handleControlMessage} from '../../shared/control-plane/events/operator-message.ts';
import {handleTaskMessage} from '../../shared/control-plane/tasks/task-message.ts';
import {tick} from '../../shared/control-plane/tick/tick.ts';
import {storePing} from '../../shared/control-plane/workers/service-proofs.ts';
import {paths} from '../../shared/domain/names.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Document, Store, Tpu, Tpus} from '../../shared/ports/ports.ts';
import {messageData} from '../../test/world/bus.ts';
import {depsOf} from '../../test/world/deps.ts';
import {SceneBucket} from './bucket.ts';
import {metered, noUsage, type Usage} from './meter.ts';
import {configOf, NOW, nodesOf, putAll, RUNS, type Size, streamNames, workersOf} from './scene.ts';

type Options = {latency_ms: number};

/** Cloud TPU that shows these nodes and accepts every request. */
export function tpusOf(nodes: () => Tpu[]): Tpus {
  return {
    list: async () => ({tpus: nodes(), unreachable: []}),
    get: async name => nodes().find(node => node.name === name),
    create: async () => 'started',
    delete: async () => 'started',
  };
}

export class World {
  readonly size: Size;
  readonly store: Store;
  readonly usage = noUsage();
  readonly bucket: SceneBucket;
  readonly deps: Deps;
  nodes: Tpu[];
  now = NOW;
  published = 0;
  /** Called for each wake. */
  onWake = () => {};
  readonly #latency_ms: number;
  #tasks: TaskMessage[] = [];

  /** Calls of `store` itself are not counted. */
  constructor(store: Store, size: Size, {latency_ms}: Options) {
    this.store = store;
    this.size = size;
    this.#latency_ms = latency_ms;
    this.bucket = new SceneBucket(streamNames(size));
    this.nodes = nodesOf(size);
    this.deps = depsOf({
      store: this.#metered(this.usage),
      objects: this.bucket.counted(latency_ms),
      bus: {publish: async (topic, message) => this.#publish(topic, message)},
      tpus: tpusOf(() => this.nodes),
      ping: () => storePing(this.deps),
      now: () => this.now,
      config: configOf(size),
    });
  }

  /** The same control plane with a count of its own. */
  countedBy(usage: Usage): Deps {
    return {...this.deps, store: this.#metered(usage)};
  }

  tick(): Promise<void> {
    return tick(this.deps);
  }

  /** A minute goes by in which every worker sends a heartbeat. */
  async minute(): Promise<void> {
    this.now += 60_000;
    const heard_at = iso(this.now - 5000);
    const heard = {heartbeat_at: heard_at, claimed_at: heard_at, progress_at: heard_at};
    await this.change(workersOf(this.size).map(worker => [`workers/${worker.name}`, {...worker, ...heard}]));
  }

  /** Writes documents without counting them. */
  change(documents: readonly [path: string, data: object][]): Promise<void> {
    return putAll(this.store, documents);
  }

  /** Changes every run without counting that. */
  async changeRuns(changed: object): Promise<void> {
    const runs = await this.store.query('runs');
    await this.change(runs.map(({path, data}) => [path, {...data, ...changed}]));
  }

  async changeRun(run: string, changed: object): Promise<void> {
    await this.change([[paths.run(run), {...(await this.store.get(paths.run(run))), ...changed}]]);
  }

  /** Delivers a message on topic `control`. */
  async control(id: string, message: Document): Promise<void> {
    this.now += 1;
    await handleControlMessage(this.deps, messageData(id, JSON.stringify(message), iso(this.now)));
    const record = await this.store.get(paths.control(id));
    if (record?.outcome !== 'applied') throw new Error(`The message ${id} was refused: ${record?.reason}`);
  }

  /** Delivers messages on topic `tasks` until none is left. */
  async deliverTasks(): Promise<void> {
    for (let next = this.#tasks.shift(); next; next = this.#tasks.shift())
      await handleTaskMessage(this.deps, next);
  }

  resetCounts(): void {
    Object.assign(this.usage, noUsage());
    Object.assign(this.bucket.usage, {class_a: 0, class_b: 0});
    this.published = 0;
  }

  #metered(usage: Usage): Store {
    const {workers, streams} = this.size;
    const documentsIn = (path: string) => (path.endsWith('/streams') ? streams / RUNS : workers);
    return metered(this.store, usage, {latency_ms: this.#latency_ms, documentsIn});
  }

  #publish(topic: string, message: Document): string {
    this.published += 1;
    if (topic === 'tasks') this.#tasks.push(message as TaskMessage);
    if (topic === 'tick') this.onWake();
    return String(this.published);
  }
}
