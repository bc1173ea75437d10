/** The loop of an agent in virtual time: it boots, leases, stores shards, and sends heartbeats during its work. */
import type {Answer, Failure, FakeAgent, JobInHand} from '../world/agent.ts';
import type {Plan} from '../world/shard-plan.ts';
import {resultOf} from './invariants/jobs.ts';

/** The machine of an agent. */
export type Machine = {
  sleep: (ms: number) => Promise<void>;
  seconds: (low: number, high: number) => number;
  /** The duration of the setup: infinite for a setup that never ends. */
  setup_s: number;
  /** Hosts of its node. */
  hosts: number;
  /** The reason of a boot that fails, if it does. */
  bootFault: string | null;
  /** The reason of a machine fault at the next shard, if there is one. */
  fault: () => string | null;
  /** True if JAX finds no TPU that works. */
  isBadHost: boolean;
  /** The failure of loading the model of a run. */
  modelFailure: (run: string) => Failure | undefined;
  /** True if the extractor hangs for ever now. Its agent speaks on. */
  hangs: () => boolean;
  /** True if the agent reports a stream as completed too early. */
  isLying: () => boolean;
  /** Stops the machine: a job has killed it, or its boot has failed. */
  die: () => void;
  /** Bytes of the weights of each run. */
  weights_bytes: number;
  /** A command starts on the machine. */
  onExec: (exec: string) => void;
};

export const RETRY_MS = 5_000;
const HEARTBEAT_MS = 30_000;
/** Time that an agent waits for the control plane to set a foreign object aside. */
const SET_ASIDE_S = 300;
/** Time until the load of a model fails. */
const LOAD_MS = 60_000;
/** The way of the weights, by the last digit of the run. */
const WAYS = ['nat_bytes', 'bucket_bytes', 'other_bytes', 'nat_bytes'] as const;
/** Time between two looks of a job at the orders of its agent. */
const JOB_STEP_S = 10;
/** Courses that end the process of one host. */
const ONE_HOST_COURSES = ['fails', 'deadly', 'restarts', 'broken'];
/** Time until JAX ends the process of a host that has lost a peer. */
const PEER_S = {least: 1, most: 40};

type End = 'lost' | 'completed' | 'drained' | Failure;

export class AgentLoop {
  readonly #agent: FakeAgent;
  readonly #machine: Machine;
  #shards = 0;
  /** Commands that the machine has taken. */
  readonly #execs = new Set<string>();
  #loaded = '';

  constructor(agent: FakeAgent, machine: Machine) {
    this.#agent = agent;
    this.#machine = machine;
  }

  async run(): Promise<void> {
    const {sleep, seconds, setup_s, bootFault, die} = this.#machine;
    await sleep(seconds(1, 20) * 1000);
    void this.#sendHeartbeats();
    if (bootFault !== null) {
      await sleep(RETRY_MS);
      await this.#agent.failBoot(bootFault);
      return die();
    }
    await sleep(setup_s * 1000);
    this.#agent.phase = 'idle';
    const agent = this.#agent;
    while (!agent.hasEnded) {
      const {status, body} = await agent.ask();
      if (status === 200 && body.action === 'work') await this.#work();
      else if (status === 200 && body.action === 'job' && agent.job) await this.#runJob(agent.job);
      else if (status !== 200 || body.action !== 'exit') await sleep(retryDelayOf({status, body}));
    }
  }

  async #sendHeartbeats(): Promise<void> {
    while (!this.#agent.hasEnded) {
      await this.#agent.heartbeat(this.#progress());
      for (const exec of this.#agent.execs) void this.#runExec(exec);
      await this.#machine.sleep(HEARTBEAT_MS);
    }
  }

  /** Runs a command once. Its arguments say the seconds that it takes and its code. */
  async #runExec(exec: string): Promise<void> {
    if (this.#execs.has(exec)) return;
    this.#execs.add(exec);
    const [agent, {sleep, onExec}] = [this.#agent, this.#machine];
    const order = await agent.takeExec(exec);
    if (!order) {
      this.#execs.delete(exec);
      return;
    }
    onExec(exec);
    const {argv, timeout_s} = order;
    const isLate = Number(argv[0]) > timeout_s;
    await sleep(Math.min(Number(argv[0]), timeout_s) * 1000);
    const end = isLate
      ? ({outcome: 'timeout', exit_code: null} as const)
      : ({outcome: 'exited', exit_code: Number(argv[1])} as const);
    while (!agent.hasEnded && !(await agent.endExec(exec, end))) await sleep(RETRY_MS);
  }

  /** Runs a job. Its code says its course and the seconds that it takes. */
  async #runJob({lease, order}: JobInHand): Promise<void> {
    const [agent, {sleep, seconds: drawn, die, hosts, isBadHost}] = [this.#agent, this.#machine];
    const [whole, seconds] = isBadHost ? ['no tpu', '20'] : (order.code ?? '').split(' ');
    // One host of a slice meets the course of the job, and JAX ends the others where they lose a peer.
    const isPeer = ONE_HOST_COURSES.includes(String(whole)) && agent.host !== lease.epoch % hosts;
    const course = isPeer ? 'peer' : whole;
    const ends_s =
      course === 'stuck'
        ? Infinity
        : course === 'endless'
          ? order.timeout_s
          : Math.min(Number(seconds), order.timeout_s);
    const hasLeft = () => this.#isLost() || agent.orders === 'cancel';
    for (let run_s = 0; run_s < ends_s && !hasLeft(); run_s += JOB_STEP_S) await sleep(JOB_STEP_S * 1000);
    if (course === 'deadly' && !hasLeft()) return die();
    if (course === 'restarts' && !hasLeft()) return this.#restart();
    if (course === 'peer') await sleep(drawn(PEER_S.least, PEER_S.most) * 1000);
    const isLate = course === 'endless' || Number(seconds) > order.timeout_s;
    const end =
      agent.orders === 'cancel'
        ? ({outcome: 'preempted'} as const)
        : isLate
          ? ({outcome: 'failed', cause: 'timeout'} as const)
          : course === 'fails'
            ? ({outcome: 'failed', cause: 'exit', error: 'exit code 1', exit_code: 1} as const)
            : course === 'peer'
              ? ({outcome: 'failed', cause: 'peer', error: 'a peer is lost', exit_code: 134} as const)
              : course === 'no tpu'
                ? ({outcome: 'failed', cause: 'tpu', error: 'TPU not available', exit_code: 1} as const)
                : course === 'broken'
                  ? ({outcome: 'failed', cause: 'setup', error: 'no environment'} as const)
                  : ({
                      outcome: 'completed',
                      ...(agent.host === 0 ? {result: resultOf(lease.job, lease.epoch)} : {}),
                    } as const);
    while (!this.#isLost() && agent.job?.lease === lease && !(await agent.finish(end))) await sleep(RETRY_MS);
    agent.giveUp();
  }

  /** The agent starts again. The first heartbeat of its setup has no lease. */
  async #restart(): Promise<void> {
    this.#agent.giveUp();
    this.#agent.phase = 'setup';
    await this.#machine.sleep(HEARTBEAT_MS + RETRY_MS);
    this.#agent.phase = 'idle';
  }

  async #work(): Promise<void> {
    const agent = this.#agent;
    this.#shards = 0;
    const end = await this.#extract();
    agent.phase = 'idle';
    if (end === 'lost' || agent.hasEnded) agent.giveUp();
    else await this.#release(end);
  }

  async #extract(): Promise<End> {
    const [agent, {sleep, seconds, fault, modelFailure, hangs, isLying}] = [this.#agent, this.#machine];
    const lease = agent.lease ?? undefined;
    const failure = modelFailure(lease?.run ?? '');
    if (failure) {
      await sleep(LOAD_MS);
      if (this.#isLost()) return 'lost';
      return agent.orders === 'drain' ? 'drained' : failure;
    }
    this.#load(lease?.run ?? '');
    const plans = await agent.download();
    if (!Array.isArray(plans)) return plans;
    agent.phase = 'compiling';
    await sleep(seconds(0, 30) * 1000);
    agent.phase = 'running';
    for (const plan of this.#inUploadOrder(plans)) {
      if (this.#isLost()) return 'lost';
      const reason = fault();
      if (reason) return {kind: 'infrastructure', reason};
      this.#shards += 1;
      const isStored = await agent.isStored(plan);
      if (isStored === true) continue;
      if (isStored !== false) return isStored;
      if (isLying()) return 'completed';
      if (hangs()) await sleep(Number.POSITIVE_INFINITY);
      await sleep(seconds(5, 120) * 1000);
      if (this.#isLost()) return 'lost';
      if (plan.final) agent.phase = 'uploading';
      for (let waited_s = 0; ; waited_s += RETRY_MS / 1000) {
        const foreign = await agent.store(plan, lease);
        if (!foreign) break;
        if (this.#isLost()) return 'lost';
        if (waited_s > SET_ASIDE_S) return foreign;
        await sleep(RETRY_MS);
      }
      if (agent.orders === 'drain' && !plan.final) return 'drained';
    }
    return 'completed';
  }

  /** Downloads the weights of the run, unless they are the last that the agent has loaded. */
  #load(run: string): void {
    if (run === this.#loaded) return;
    this.#loaded = run;
    this.#agent.received[WAYS[Number(run.at(-1))] ?? 'nat_bytes'] += this.#machine.weights_bytes;
  }

  #isLost(): boolean {
    return this.#agent.hasEnded || this.#agent.orders === 'stop';
  }

  /** Several uploads run at once, so a shard may be stored before an earlier shard. The last shard is stored last. */
  #inUploadOrder(plans: readonly Plan[]): Plan[] {
    const order = [...plans];
    for (let place = 0; place + 2 < order.length; place++) {
      const [first, second] = [order[place], order[place + 1]];
      if (first && second && this.#machine.seconds(0, 1) < 0.3) order.splice(place, 2, second, first);
    }
    return order;
  }

  #progress(): object | null {
    if (!this.#agent.lease) return null;
    const counts = {samples_done: 0, samples_total: null, tokens_done: 0, shards_done: this.#shards};
    return {...counts, tokens_per_s: null};
  }

  async #release(end: Exclude<End, 'lost'>): Promise<void> {
    const agent = this.#agent;
    const [outcome, failure] = typeof end === 'string' ? [end, null] : ['failed', end];
    while (!(await agent.release(outcome, failure)) && !agent.hasEnded) await this.#machine.sleep(RETRY_MS);
    agent.giveUp();
  }
}

function retryDelayOf({status, body}: Answer): number {
  return status === 200 ? Number(body.retry_s) * 1000 : 4 * RETRY_MS;
}
