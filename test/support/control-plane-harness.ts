/** The real functions and rules in a small world without clocks: its bucket, TPUs, messages and agents do one thing at a time. */

import assert from 'node:assert/strict';
import type {CloudEvent, Request, Response} from '@google-cloud/functions-framework';
import {onControl} from '../../functions/on-control.ts';
import {onObject} from '../../functions/on-object.ts';
import {onTask} from '../../functions/on-task.ts';
import {onTick} from '../../functions/on-tick.ts';
import {onTpu} from '../../functions/on-tpu.ts';
import {workerApi} from '../../functions/worker-api.ts';
import {Rejected} from '../../shared/contracts/errors.ts';
import {ActiveRuns} from '../../shared/control-plane/state/active-runs.ts';
import type {Deps} from '../../shared/control-plane/state/deps.ts';
import {runRecords, streamRecords, workerRecords} from '../../shared/control-plane/state/documents.ts';
import {TickQueue} from '../../shared/control-plane/state/tick-queue.ts';
import {parseWorkerName, shardObject, streamId} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/run/run.ts';
import type {Stream} from '../../shared/domain/stream/stream.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Worker} from '../../shared/domain/worker/worker.ts';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import type {Document, Store} from '../../shared/ports.ts';
import {Agent, BAD_LINE, planShards} from './agent.ts';
import {aConfig, T0} from './builders.ts';
import {exposed, Interleaver, Weather} from './interleaver.ts';
import {MemoryObjects, MemoryTpus} from './memory.ts';

export type Message = {id: string; topic: 'object' | 'control' | 'tpu' | 'tick' | 'tasks'; data: unknown};

const handlers = {object: onObject, control: onControl, tpu: onTpu, tick: onTick, tasks: onTask};

/** Short limits, so that a test needs few minutes of the world's time for anything to run out. */
export const QUICK = {
  GLEANER_HEARTBEAT_S: '20',
  GLEANER_LEASE_S: '90',
  GLEANER_SILENT_S: '120',
  GLEANER_AUDIT_S: '60',
  GLEANER_CREATE_S: '300',
  GLEANER_BOOT_S: '180',
  GLEANER_SETUP_S: '600',
  GLEANER_DRAIN_S: '240',
  GLEANER_REPAIR_S: '300',
  GLEANER_ASK_AGAIN_S: '120',
  GLEANER_CREATE_WAIT_S: '150',
  GLEANER_ZONES: 'us-central1-a,europe-west4-b',
  GLEANER_WORKERS_PER_ZONE: '2',
};

export class World {
  now = T0;
  readonly settings: Record<string, string>;
  /** What was published or finalised and not delivered yet, the oldest first. */
  readonly queue: Message[] = [];
  readonly published: Message[] = [];
  readonly logs: {severity: string; message: string}[] = [];
  readonly objects: MemoryObjects;
  readonly tpus: MemoryTpus;
  readonly interleaver = new Interleaver();
  readonly weather = new Weather();
  /** The agents of the nodes that are READY, by node; and those whose node is gone and who do not know it. */
  readonly agents = new Map<string, Agent>();
  readonly zombies: Agent[] = [];
  /** worker-api answers neither agents nor pings. */
  isApiOut = false;
  /** The tick may not call worker-api, though agents may. */
  isPingRefused = false;
  /** Agents that never speak, by the name and incarnation of their worker. */
  isStillborn: (name: string, incarnation: number) => boolean = () => false;
  deps: Deps;
  store: Store;
  #messages = 0;
  constructor(set: Record<string, string> = {}) {
    this.settings = {...QUICK, ...set};
    const now = () => this.now;
    this.objects = new MemoryObjects(now, ({name, generation}) =>
      this.#enqueue('object', {bucket: 'bucket', name, generation}),
    );
    this.tpus = new MemoryTpus(now);
    this.store = openSqliteStore(':memory:', () => 0);
    this.deps = this.#compose();
  }

  #compose(): Deps {
    const ports = <T extends object>(port: T, verbs: (keyof T & string)[]) =>
      exposed(port, verbs, this.interleaver, this.weather);
    return {
      store: ports(this.store, ['get', 'query', 'count', 'sum', 'transaction', 'close']),
      objects: ports(this.objects, ['list', 'head', 'read', 'create', 'replace', 'delete']),
      tpus: ports(this.tpus, ['list', 'get', 'create', 'delete']),
      bus: ports({publish: async (topic: string, message: Document) => this.#publish(topic, message)}, [
        'publish',
      ]),
      ping: async () => {
        if (this.isPingRefused) throw new Error('worker-api answered 403');
        const {status, body} = await this.api({action: 'ping'});
        if (status !== 200) throw new Error(`worker-api answered ${status}: ${JSON.stringify(body)}`);
      },
      // No two looks at the clock are alike, as in the real world.
      now: () => ++this.now,
      log: (severity, message) => void this.logs.push({severity, message}),
      config: aConfig(this.settings),
      ticks: aTickQueue(),
      activeRuns: new ActiveRuns(),
      specHashes: new Map(),
      startupScript: async () => '#!/bin/bash\n',
    };
  }

  /** The same cloud under another configuration. */
  redeploy(set: Record<string, string>): void {
    Object.assign(this.settings, set);
    this.deps = {...this.deps, config: aConfig(this.settings)};
  }

  #publish(topic: string, message: Document): string {
    assert.ok(topic in handlers && topic !== 'object', topic);
    return this.#enqueue(topic as Message['topic'], Buffer.from(JSON.stringify(message)));
  }

  #enqueue(topic: Message['topic'], content: object): string {
    this.#messages += 1;
    const id = String(1000 + this.#messages);
    const data = Buffer.isBuffer(content)
      ? {message: {data: content.toString('base64'), messageId: id, publishTime: iso(++this.now)}}
      : content;
    this.queue.push({id, topic, data});
    this.published.push({id, topic, data});
    return id;
  }

  /** Publishes on topic `control`, as a person does: any text. */
  control(text: string | object): string {
    return this.#enqueue('control', Buffer.from(typeof text === 'string' ? text : JSON.stringify(text)));
  }

  /** Drops a stream as a person does, and answers its object's name. */
  drop(run: string, index: number, text: string, suffix = ''): string {
    const name = `datasets/${run === 'default' ? '' : `${run}/`}stream_${streamId(index)}.jsonl${suffix}`;
    this.objects.put(name, text);
    return name;
  }

  /** Hands a message to its function, as the framework does; false when it failed and will come again. */
  async handle({id, topic, data}: Message): Promise<boolean> {
    const event = {id, type: topic, source: 'test', specversion: '1.0', data} as CloudEvent<unknown>;
    try {
      await handlers[topic](this.deps, event);
      return true;
    } catch (error) {
      this.logs.push({severity: 'ERROR', message: `${topic}: ${(error as Error).message}`});
      return error instanceof Rejected;
    }
  }

  /** Delivers the message at this place of the queue once; true when it was taken. */
  async deliver(index = 0): Promise<boolean> {
    const [message] = this.queue.splice(index, 1);
    if (!message) return false;
    // One tick answers every wake that is there.
    if (message.topic === 'tick') remove(this.queue, ({topic}) => topic === 'tick');
    const taken = await this.handle(message);
    if (!taken) this.queue.push(message);
    return taken;
  }

  async deliverNext(topic: Message['topic']): Promise<boolean> {
    const index = this.queue.findIndex(message => message.topic === topic);
    return index >= 0 && (await this.deliver(index));
  }

  /** Delivers what is there and what comes of it, until nothing is left that anybody takes. */
  async deliverAll(): Promise<void> {
    for (let refused = 0; refused < this.queue.length; ) refused = (await this.deliver()) ? 0 : refused + 1;
  }

  /** A tick of an instance of its own: two of them may run at once. */
  async tick(): Promise<void> {
    const message = {attributes: {source: 'scheduler'}};
    const event = {id: 'tick', type: 'tick', source: 'test', specversion: '1.0', data: {message}};
    await onTick({...this.deps, ticks: aTickQueue()}, event as CloudEvent<unknown>);
  }

  async api(body: object): Promise<{status: number; body: Record<string, unknown>}> {
    if (this.isApiOut) return {status: 503, body: {}};
    const answer = {status: 0, body: {}};
    const response = {
      status: (status: number) => Object.assign(response, {statusCode: status}),
      json: (json: object) =>
        Object.assign(answer, {status: response.statusCode, body: JSON.parse(JSON.stringify(json))}),
      statusCode: 0,
    };
    try {
      await workerApi(this.deps, {body} as Request, response as unknown as Response);
    } catch (error) {
      this.logs.push({severity: 'ERROR', message: `worker-api: ${(error as Error).message}`});
      return {status: 500, body: {}};
    }
    return answer;
  }

  /** Cloud TPU does what it was asked; new nodes boot an agent, and the agents of nodes that are no more are dead. */
  settle(): void {
    this.tpus.settle();
    for (const [name, agent] of this.agents)
      if (this.#incarnationOf(name) !== agent.incarnation) this.agents.delete(name);
    for (const {name, state} of this.tpus.nodes.values())
      if (state === 'READY' && !this.agents.has(name)) this.boot(name);
  }

  #incarnationOf(name: string): number | undefined {
    const node = this.tpus.nodes.get(name);
    const works = node !== undefined && ['READY', 'CREATING', 'UNKNOWN'].includes(node.state ?? '');
    return works ? Number(node.metadata['gleaner-incarnation']) : undefined;
  }

  /** The host starts, also again: its agent begins from nothing. */
  boot(name: string): Agent {
    const {metadata} = this.tpus.node(name);
    const incarnation = Number(metadata['gleaner-incarnation']);
    const agent = new Agent(
      String(metadata['gleaner-worker']),
      incarnation,
      body => this.api(body),
      this.deps.objects,
    );
    agent.silent = this.isStillborn(name, incarnation);
    this.agents.set(name, agent);
    return agent;
  }

  agent(name: string): Agent {
    const agent = this.agents.get(name);
    if (!agent) throw new Error(`There is no agent on ${name}: ${[...this.agents.keys()]}`);
    return agent;
  }

  /** Takes the node from under its agent, which goes on: a machine that cannot be reached, as seen from outside. */
  zombify(name: string): Agent {
    const agent = this.agent(name);
    this.agents.delete(name);
    this.tpus.nodes.delete(name);
    this.zombies.push(agent);
    return agent;
  }

  /** One minute in which all is well: messages arrive, nodes come and go, agents take some steps, and the Scheduler asks for a tick. */
  async minute(agentSteps = 3): Promise<void> {
    this.now += 60_000;
    await this.deliverAll();
    this.settle();
    for (const agent of this.agents.values()) await agent.beat();
    for (let step = 0; step < agentSteps; step++)
      for (const agent of this.agents.values()) await agent.step();
    await this.deliverAll();
    await this.tick();
    await this.deliverAll();
  }

  async minutes(count: number, agentSteps?: number): Promise<void> {
    for (let minute = 0; minute < count; minute++) await this.minute(agentSteps);
  }

  /** Lets minutes go by until `goal` holds; after `most` of them the test fails with what is there instead. */
  async until(
    what: string,
    goal: () => boolean | Promise<boolean>,
    most = 60,
    agentSteps?: number,
  ): Promise<void> {
    for (let minute = 0; minute < most; minute++) {
      if (await goal()) return;
      await this.minute(agentSteps);
    }
    if (!(await goal())) assert.fail(`${what} did not come about: ${await this.describe()}`);
  }

  /** No node is paid for, no message is under way, and no active run has a stream. */
  async isAsleep(): Promise<boolean> {
    if (this.tpus.nodes.size > 0 || this.queue.length > 0) return false;
    const runs = await this.store.query('runs', {where: [{field: 'status', op: '==', value: 'active'}]});
    const streams = await Promise.all(runs.map(({path}) => this.store.count(`${path}/streams`)));
    return streams.every(count => count === 0);
  }

  /** Lets minutes go by until two ticks in a row find nothing to do. */
  async untilAsleep(most?: number): Promise<void> {
    let minutes = 0;
    const isAtRest = async () => {
      minutes = (await this.isAsleep()) ? minutes + 1 : 0;
      return minutes > 2;
    };
    await this.until('sleep', isAtRest, most);
  }

  run(run: string): Promise<Run | undefined> {
    return runRecords.get(this.store, run);
  }

  stream(run: string, stream: string): Promise<Stream | undefined> {
    return streamRecords.get(this.store, run, stream);
  }

  worker(name: string): Promise<Worker | undefined> {
    return workerRecords.get(this.store, name);
  }

  /** The texts of the timeline, of one kind or all. */
  async timeline(kind?: string): Promise<string[]> {
    const events = await this.store.query('events', {order_by: {field: 'at'}});
    return events
      .filter(({data}) => kind === undefined || data.kind === kind)
      .map(({data}) => String(data.text));
  }

  /** What was asked of Cloud TPU, as `create tpu-us-central1-a-0#1`. */
  asked(): string[] {
    return this.published.flatMap(({topic, data}) => {
      if (topic !== 'tpu') return [];
      const {message} = data as {message: {data: string}};
      const {action, worker, incarnation} = JSON.parse(Buffer.from(message.data, 'base64').toString());
      assert.ok(parseWorkerName(worker));
      return [`${action} ${worker}#${incarnation}`];
    });
  }

  /** Every sample of the stream is stored once: the shards follow each other and hold its lines, the bad ones counted. */
  async assertStoredOnce(run: string, stream: string, text: string): Promise<void> {
    const names = this.objects
      .names(`activations/`)
      .filter(name => name.includes(`${prefixOf(run, stream)}shard_`));
    const plans = planShards(text);
    assert.deepEqual(
      names,
      plans.map(plan => shardObject(run, stream, plan.shard, 'safetensors')),
    );
    for (const plan of plans) {
      const held = this.objects.text(shardObject(run, stream, plan.shard, 'safetensors'));
      assert.equal(held, plan.lines.filter(line => line !== BAD_LINE).join('\n'));
    }
    const document = await this.stream(run, stream);
    const rejected = plans.flatMap(plan => plan.lines).filter(line => line === BAD_LINE).length;
    const lines = (plans.at(-1)?.last ?? -1) + 1;
    assert.deepEqual(
      {
        status: document?.status,
        last: document?.last_processed_sample_idx,
        stored: document?.total_samples_processed,
        rejected: document?.rejected_samples,
        shards: document?.total_shards,
        lease: document?.lease,
      },
      {
        status: 'completed',
        last: lines - 1,
        stored: lines - rejected,
        rejected,
        shards: plans.length,
        lease: null,
      },
    );
  }

  async describe(): Promise<string> {
    const [runs, workers] = [await this.store.query('runs'), await this.store.query('workers')];
    const streams = (await Promise.all(runs.map(({path}) => this.store.query(`${path}/streams`)))).flat();
    return JSON.stringify(
      {
        nodes: this.tpus.states(),
        queue: this.queue.length,
        runs: runs.map(({id, data}) => [id, data.status, data.reason]),
        streams: streams.map(({path, data}) => [
          path,
          data.status,
          data.total_shards,
          data.lease,
          data.last_error,
        ]),
        workers: workers.map(({id, data}) => [id, data.phase, data.incarnation, data.work, data.last_death]),
        agents: [...this.agents.values(), ...this.zombies].map(({worker, incarnation, state}) => [
          worker,
          incarnation,
          state,
        ]),
        logs: this.logs.filter(({severity}) => severity === 'ERROR').slice(-5),
      },
      null,
      1,
    );
  }

  /** An operator lets a run go on that waits for it. */
  async resume(run: string): Promise<void> {
    this.control({action: 'resume', run});
    await this.deliverAll();
  }

  /** The database is lost; the bucket and the nodes are not, nor are the instances of the functions, and what they know. */
  async wipe(): Promise<void> {
    await this.store.close();
    this.store = openSqliteStore(':memory:', () => 0);
    const {specHashes} = this.deps;
    this.deps = {...this.#compose(), specHashes};
  }
}

/** Its clock is its own: a pause between two ticks takes none of the world's time. */
function aTickQueue(): TickQueue {
  let now = 0;
  return new TickQueue({
    now: () => now,
    sleep: async ms => {
      now += ms;
    },
  });
}

function remove<T>(items: T[], isUnwanted: (item: T) => boolean): void {
  const kept = items.filter(item => !isUnwanted(item));
  items.splice(0, items.length, ...kept);
}

function prefixOf(run: string, stream: string): string {
  return shardObject(run, stream, 1, 'safetensors').replace(/shard_.*/, '');
}
