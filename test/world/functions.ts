/** The real functions over a store, a bucket and TPUs in memory. A test steps the clock and delivers each message. */
import assert from 'node:assert/strict';
import type {CloudEvent} from '@google-cloud/functions-framework';
import {onControl} from '../../functions/on-control.ts';
import {onExec} from '../../functions/on-exec.ts';
import {onJob} from '../../functions/on-job.ts';
import {onObject} from '../../functions/on-object.ts';
import {onTask} from '../../functions/on-task.ts';
import {onTick} from '../../functions/on-tick.ts';
import {onTpu} from '../../functions/on-tpu.ts';
import {workerApi} from '../../functions/worker-api.ts';
import {Rejected} from '../../shared/contracts/errors.ts';
import {TickQueue} from '../../shared/control-plane/calls/tick-queue.ts';
import type {Deps} from '../../shared/control-plane/deps.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Document, Store} from '../../shared/ports/ports.ts';
import type {Answer} from './agent.ts';
import {FakeBucket} from './bucket.ts';
import {aConfig, T0} from './builders.ts';
import {
  AS_CONTROL,
  asHost,
  askWorkerApi,
  eventOf,
  type Handlers,
  jobEvent,
  messageData,
  notificationData,
  secretOf,
  type Topic,
} from './bus.ts';
import {type Call, callAtOnce} from './call.ts';
import {checkedStore} from './checked-store.ts';
import {Clockwork} from './clock.ts';
import {depsOf, newMemory} from './deps.ts';
import {Interleaver, Outage, storeThrough} from './interleaver.ts';
import {FakeReceiver} from './receiver.ts';
import {SimStore} from './store.ts';
import {calm} from './tpu-faults.ts';
import {FakeTpus} from './tpus.ts';

export type Message = {id: string; topic: Topic; data: unknown};

const handlers: Handlers = {
  ...{object: onObject, control: onControl, exec: onExec, job: onJob},
  ...{tpu: onTpu, tick: onTick, tasks: onTask},
};

/** Short limits: each runs out within a few minutes of the world's time. */
const QUICK = {
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
  GLEANER_ZONES: 'us-central1-a,europe-west4-b',
  GLEANER_WORKERS_PER_ZONE: '2',
};

export class FunctionWorld {
  readonly clockwork = new Clockwork(T0);
  readonly settings: Record<string, string>;
  /** Messages and object events that are not delivered yet, the oldest first. */
  readonly queue: Message[] = [];
  /** All messages and object events. */
  readonly published: Message[] = [];
  readonly logs: {severity: string; message: string; signal?: string | undefined}[] = [];
  /** Cloud TPU has no faults and no delays, unless a test gives it some. */
  readonly tpuFaults = calm(this.clockwork);
  readonly objects = new FakeBucket(() => this.now);
  readonly tpus = new FakeTpus(this.tpuFaults);
  readonly interleaver = new Interleaver();
  readonly outage = new Outage();
  /** Gets the notifications of a world with `GLEANER_NOTIFY`. */
  readonly receiver = new FakeReceiver();
  /** worker-api answers neither agents nor pings. */
  isApiOut = false;
  /** worker-api answers agents and refuses the pings of the tick. */
  isPingRefused = false;
  readonly #memory = newMemory();
  deps: Deps;
  store: Store;

  constructor(set: Record<string, string> = {}) {
    this.settings = {...QUICK, ...set};
    this.objects.onFinalized = ({name, generation}) =>
      void this.#enqueue('object', id =>
        notificationData(id, {bucket: 'bucket', name, generation}, iso(this.now)),
      );
    this.store = this.#newStore();
    this.deps = this.#compose();
  }

  get now(): number {
    return this.clockwork.now;
  }

  set now(now: number) {
    this.clockwork.now = now;
  }

  #newStore(): Store {
    return checkedStore(new SimStore(this.clockwork).through(callAtOnce));
  }

  #compose(): Deps {
    const call: Call = async (verb, effect) => {
      await this.interleaver.pause();
      return this.outage.around(verb, effect);
    };
    return depsOf({
      ...this.#memory,
      store: storeThrough(call, this.interleaver, this.store),
      objects: this.objects.through(call),
      checkpoints: this.objects.through(call),
      tpus: this.tpus.through(call),
      bus: {
        publish: (topic, message) => call('publish', () => this.#publish(topic, JSON.stringify(message))),
      },
      ping: async () => {
        if (this.isPingRefused) throw new Error('worker-api answered 403');
        const {status, body} = await this.api({action: 'ping'}, AS_CONTROL);
        if (status !== 200) throw new Error(`worker-api answered ${status}: ${JSON.stringify(body)}`);
      },
      webhook: this.receiver,
      // Two readings of a clock differ, as in the real world.
      now: () => ++this.now,
      log: (severity, message, {signal} = {}) => void this.logs.push({severity, message, signal}),
      config: aConfig(this.settings),
      ticks: aTickQueue(),
    });
  }

  /** The same cloud under another configuration. */
  redeploy(set: Record<string, string>): void {
    Object.assign(this.settings, set);
    this.deps = {...this.deps, config: aConfig(this.settings)};
  }

  /** Loses the database, and neither the bucket, nor nodes, nor the instances of functions with their memory. */
  async wipe(): Promise<void> {
    this.store = this.#newStore();
    this.deps = this.#compose();
  }

  #publish(topic: string, text: string): string {
    assert.ok(topic in handlers && topic !== 'object', topic);
    return this.#enqueue(topic as Message['topic'], id => messageData(id, text, iso(++this.now)));
  }

  /** Publishes any text on topic `control`, as a person does. */
  control(text: string | object): string {
    return this.#publish('control', typeof text === 'string' ? text : JSON.stringify(text));
  }

  /** Publishes a message on topic `control`, and delivers it with all that follows. */
  async order(text: string | object): Promise<string> {
    const id = this.control(text);
    await this.deliverAll();
    return id;
  }

  /** Writes the document of a job as a client library does. Its event is under way. */
  async writeJob(job: string, document: Document): Promise<void> {
    const {jobs_collection} = this.deps.config;
    await this.store.transaction(async tx => tx.create(`${jobs_collection}/${job}`, document));
    this.#enqueue('job', id => jobEvent(id, job, jobs_collection));
  }

  /** Changes fields of a document, or makes it of them, as a person does by hand. */
  edit(path: string, changes: object): Promise<void> {
    return this.store.transaction(async tx => tx.set(path, {...(await tx.get(path)), ...changes}));
  }

  /** Publishes any text on topic `exec`, as a person does. */
  exec(text: string | object): string {
    return this.#publish('exec', typeof text === 'string' ? text : JSON.stringify(text));
  }

  #enqueue(topic: Topic, dataOf: (id: string) => unknown): string {
    const id = String(1001 + this.published.length);
    const message = {id, topic, data: dataOf(id)};
    this.queue.push(message);
    this.published.push(message);
    return id;
  }

  /** Delivers the message at this place of the queue once; true when its function accepts it. */
  async deliver(index = 0): Promise<boolean> {
    const [message] = this.queue.splice(index, 1);
    if (!message) return false;
    // One tick answers every wake that is there.
    if (message.topic === 'tick') this.#drop('tick');
    const isAccepted = await this.handle(message);
    if (!isAccepted) this.queue.push(message);
    return isAccepted;
  }

  async deliverNext(topic: Topic): Promise<boolean> {
    const index = this.queue.findIndex(message => message.topic === topic);
    return index >= 0 && (await this.deliver(index));
  }

  /** Delivers all messages and the messages that follow from them, until only refused ones are left. */
  async deliverAll(): Promise<void> {
    for (let refused = 0; refused < this.queue.length; ) refused = (await this.deliver()) ? 0 : refused + 1;
  }

  #drop(topic: Topic): void {
    this.queue.splice(0, this.queue.length, ...this.queue.filter(message => message.topic !== topic));
  }

  /** Hands a message to its function, as the framework does; false when the message will come again. */
  async handle({id, topic, data}: Message): Promise<boolean> {
    try {
      const event = topic === 'job' ? (data as CloudEvent<unknown>) : eventOf(id, topic, data);
      await handlers[topic](this.deps, event);
      return true;
    } catch (error) {
      this.logs.push({severity: 'ERROR', message: `${topic}: ${(error as Error).message}`});
      return error instanceof Rejected;
    }
  }

  /** A tick of an instance of its own: two of them may run at once. */
  async tick(): Promise<void> {
    const data = {message: {attributes: {source: 'scheduler'}}};
    await onTick({...this.deps, ticks: aTickQueue()}, eventOf('tick', 'tick', data));
  }

  /** Asks worker-api, as the host that the request names unless the headers say otherwise. */
  async api(body: object, headers = headersOf(body)): Promise<Answer> {
    if (this.isApiOut) return {status: 503, body: {}};
    const answer: Answer = {status: 0, body: {}};
    try {
      await askWorkerApi(workerApi, this.deps, headers, body, (status, said) =>
        Object.assign(answer, {status, body: said}),
      );
    } catch (error) {
      this.logs.push({severity: 'ERROR', message: `worker-api: ${(error as Error).message}`});
      return {status: 500, body: {}};
    }
    return answer;
  }
}

function headersOf(body: {worker?: string; incarnation?: number; host?: number}): Record<string, string> {
  return asHost(secretOf(String(body?.worker), Number(body?.incarnation), body?.host));
}

/** A queue with a clock of its own: a pause between two ticks takes none of the world's time. */
function aTickQueue(): TickQueue {
  let now = 0;
  return new TickQueue({
    now: () => now,
    sleep: async ms => {
      now += ms;
    },
  });
}
