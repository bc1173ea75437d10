/** A small world in which agents work: messages, TPUs and agents do one thing at a time. */
import assert from 'node:assert/strict';
import {runRecords, streamRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {hostsOfType} from '../../shared/domain/fleet/accelerators.ts';
import {parseWorkerName, streamId} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Stream} from '../../shared/domain/records/stream.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import {FakeAgent} from './agent.ts';
import {textOf} from './bus.ts';
import {FunctionWorld} from './functions.ts';
import {assertStoredOnce, describe} from './world-checks.ts';

const keyOf = (name: string, host: number) => (host === 0 ? name : `${name}/${host}`);

export class World extends FunctionWorld {
  /** The agents of READY nodes: that of host 0 by its node, and of another host by `NODE/HOST`. */
  readonly agents = new Map<string, FakeAgent>();
  /** Agents that go on without their node. */
  readonly zombies: FakeAgent[] = [];
  /** Names the workers whose agents never speak. */
  isStillborn: (name: string, incarnation: number) => boolean = () => false;

  /** Called for each agent that boots. */
  onAgent: (agent: FakeAgent) => void = () => {};

  /** Drops a stream as a person does, and returns the name of its object. */
  drop(run: string, index: number, text: string, suffix = ''): string {
    const name = `datasets/${run === 'default' ? '' : `${run}/`}stream_${streamId(index)}.jsonl${suffix}`;
    this.objects.put(name, text);
    return name;
  }

  /** The text of an object that is there. */
  text(name: string): string {
    return this.objects.text(name) ?? assert.fail(`There is no object ${name}`);
  }

  /** Lets Cloud TPU finish its operations, and then boots the agents of new nodes and ends the agents of lost nodes. */
  settle(): void {
    this.settleTpus();
    for (const [name, agent] of this.agents)
      if (this.#incarnationOf(name.split('/', 1)[0] ?? '') !== agent.incarnation) this.agents.delete(name);
    for (const {name, state, accelerator} of this.tpus.nodes.values())
      for (let host = 0; host < hostsOfType(accelerator); host++)
        if (state === 'READY' && !this.agents.has(keyOf(name, host))) this.boot(name, host);
  }

  /** A request that leaves the queue becomes a node, and then the node becomes READY. */
  settleTpus(): void {
    this.clockwork.runDue();
    this.clockwork.runDue();
  }

  #incarnationOf(name: string): number | undefined {
    const node = this.tpus.nodes.get(name);
    const works = node !== undefined && ['READY', 'CREATING', 'UNKNOWN'].includes(node.state);
    return works ? Number(node.metadata['gleaner-incarnation']) : undefined;
  }

  /** Starts the host, perhaps again: its agent begins from nothing. */
  boot(name: string, host = 0): FakeAgent {
    const {metadata} = this.tpus.node(name);
    const incarnation = Number(metadata['gleaner-incarnation']);
    const worker = String(metadata['gleaner-worker']);
    const ticket = String(metadata['gleaner-ticket']);
    const api = (body: object) => this.api(body);
    const agent = new FakeAgent(worker, incarnation, ticket, api, this.deps.objects, host);
    agent.silent = this.isStillborn(name, incarnation);
    this.onAgent(agent);
    this.agents.set(keyOf(name, host), agent);
    return agent;
  }

  agent(name: string, host = 0): FakeAgent {
    const agent = this.agents.get(keyOf(name, host));
    if (!agent) throw new Error(`There is no agent on ${name}: ${[...this.agents.keys()]}`);
    return agent;
  }

  /** Cloud TPU takes the node, and its agent ends without a word. */
  preempt(name: string): void {
    this.tpus.node(name).state = 'PREEMPTED';
    this.agents.delete(name);
  }

  /** Removes the node of an agent that goes on. */
  zombify(name: string): FakeAgent {
    const agent = this.agent(name);
    this.agents.delete(name);
    this.tpus.nodes.delete(name);
    this.zombies.push(agent);
    return agent;
  }

  /** One minute without faults: messages arrive, nodes come and go, agents take some steps, and the Scheduler asks for a tick. */
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

  /** Runs minutes until `goal` holds. After `most` minutes the test fails with a description of the world. */
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

  /** No TPU is left, no message is under way, and no active run has a stream. */
  async isAsleep(): Promise<boolean> {
    if (this.tpus.nodes.size + this.tpus.queue.size + this.queue.length > 0) return false;
    const runs = await this.store.query('runs', {where: [{field: 'status', op: '==', value: 'active'}]});
    const streams = await Promise.all(runs.map(({path}) => this.store.count(`${path}/streams`)));
    return streams.every(count => count === 0);
  }

  /** Runs minutes until two ticks in a row find nothing to do. */
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

  /** Requests to Cloud TPU, as `create tpu-us-central1-a-0#1`. */
  asked(): string[] {
    return this.published.flatMap(({topic, data}) => {
      if (topic !== 'tpu') return [];
      const {action, worker, incarnation} = JSON.parse(textOf(data));
      assert.ok(parseWorkerName(worker));
      return [`${action} ${worker}#${incarnation}`];
    });
  }

  /** Runs minutes until the world sleeps. Then the stream must be stored once. */
  async untilStoredOnce(run: string, stream: string, text: string, most?: number): Promise<void> {
    await this.untilAsleep(most);
    await this.assertStoredOnce(run, stream, text);
  }

  assertStoredOnce(run: string, stream: string, text: string): Promise<void> {
    return assertStoredOnce(this, run, stream, text);
  }

  describe(): Promise<string> {
    return describe(this);
  }

  /** An operator resumes a run. */
  async resume(run: string): Promise<void> {
    await this.order({action: 'resume', run});
  }
}
