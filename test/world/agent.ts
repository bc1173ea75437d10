/** The agent of a TPU VM, as small as it can be: it asks, stores shards, and believes each answer. Its caller decides when it acts. */
import {metadataObject, shardObject} from '../../shared/domain/names.ts';
import type {Contradiction} from '../../shared/domain/timeline.ts';
import type {Objects} from '../../shared/ports/ports.ts';
import {metadataOf, type Plan, planShards, type Source, shardBytes, shardMetadata} from './shard-plan.ts';

export type Answer = {status: number; body: Record<string, unknown>};
type Api = (request: object) => Promise<Answer>;
export type Failure = {
  kind: 'stream' | 'model' | 'hub' | 'infrastructure';
  reason: string;
  contradiction?: Contradiction;
};

type Lease = {run: string; stream: string; epoch: number};
type JobLease = {job: string; epoch: number};
/** The report of the end of a job. */
export type JobEnd = {
  outcome: 'completed' | 'failed' | 'preempted' | 'drained';
  cause?: string;
  error?: string;
  exit_code?: number;
  result?: string;
  contradiction?: Contradiction;
};
/** A job in hand: its lease, and the order of worker-api. */
export type JobInHand = {lease: JobLease; order: {code: string | null; timeout_s: number}};
type Work = Source & {
  dataset: {object: string; generation: string; crc32c: string};
  lease_key: string;
  stored_shards: number;
  kept_shards: number[];
};
/** Steps until an agent fails its stream for a foreign object at the place of a shard. */
const MOST_WAITS = 5;

export class FakeAgent {
  readonly worker: string;
  readonly incarnation: number;
  /** Answers that ended the work of the agent or its life, and every order to drain. */
  readonly told: string[] = [];
  /** A silent agent says nothing and does nothing: its node is READY and its host is dead. */
  silent = false;
  /** The next step reports this failure and stores nothing. */
  failure: Failure | undefined;
  phase: 'setup' | 'idle' | 'loading' | 'compiling' | 'running' | 'uploading' = 'setup';
  hasEnded = false;
  orders: 'continue' | 'drain' | 'cancel' | 'stop' = 'continue';
  lease: Lease | null = null;
  job: JobInHand | null = null;
  /** Commands that the last heartbeat named. */
  execs: string[] = [];
  /** The end that the next step reports of its job; null: the job goes on. */
  jobEnd: JobEnd | null = {outcome: 'completed', result: 'done'};
  /** Bytes that the host has downloaded since its boot. */
  readonly received = {nat_bytes: 0, bucket_bytes: 0, other_bytes: 0};
  #work: Work | undefined;
  #text = '';
  /** Shards that may be missing; undefined until the stream was read. */
  #left: Plan[] | undefined;
  /** Reports of an end without an answer until the agent gives up: an agent repeats them for ten minutes, and a step is a minute. */
  mostReports = 10;
  #reports = 0;
  #waits = 0;
  /** True after a hello that worker-api accepted. */
  isBound = false;
  readonly host: number;
  readonly #ticket: string;
  readonly #api: Api;
  readonly #objects: Objects;

  constructor(worker: string, incarnation: number, ticket: string, api: Api, objects: Objects, host = 0) {
    this.host = host;
    this.worker = worker;
    this.incarnation = incarnation;
    this.#ticket = ticket;
    this.#api = api;
    this.#objects = objects;
  }

  get state(): 'setup' | 'asking' | 'working' | 'ended' {
    if (this.hasEnded) return 'ended';
    if (this.lease || this.job) return 'working';
    return this.phase === 'setup' ? 'setup' : 'asking';
  }

  /** Sends a heartbeat, as an agent does beside its work. */
  async beat(): Promise<void> {
    if (this.silent || this.hasEnded) return;
    await this.heartbeat();
    if (this.orders === 'stop') this.giveUp();
  }

  /** Does one thing: a request or a shard. The next step, a minute later, repeats a request that fails, for ten minutes as agents do. */
  async step(): Promise<void> {
    if (this.silent || this.hasEnded) return;
    if (this.phase === 'setup') {
      if (await this.heartbeat()) this.phase = 'idle';
    } else if (this.job) {
      if (this.orders === 'stop') this.giveUp();
      else if (this.orders === 'cancel') await this.finish({outcome: 'preempted'});
      else if (this.jobEnd) await this.finish(this.jobEnd);
    } else if (!this.lease) {
      await this.ask();
      if (this.lease) await this.#read();
    } else if (this.failure) await this.release('failed', this.failure);
    else if (!this.#left) await this.#read();
    else await this.#storeNext(this.#left);
  }

  /** Reports that the boot of its host has failed. False when worker-api did not answer. */
  async failBoot(reason: string): Promise<boolean> {
    return (await this.#post({action: 'setup-failed', reason})).status < 500;
  }

  /** 30 seconds are left: the agent gives its stream back. */
  async preempted(): Promise<void> {
    this.hasEnded = true;
    if (this.lease) await this.release('preempted');
    if (this.job) await this.finish({outcome: 'preempted'});
  }

  async ask(): Promise<Answer> {
    const answer = await this.#post({action: 'lease', loaded: null});
    const {status, body} = answer;
    if (status === 200 && body.action === 'work') {
      const {run, stream, epoch} = body.lease as Lease;
      this.lease = {run, stream, epoch};
      this.#work = body.work as Work;
      this.#left = undefined;
      this.orders = 'continue';
      this.phase = 'loading';
    }
    if (status === 200 && body.action === 'job') {
      const {job, epoch} = body.lease as JobLease;
      this.job = {lease: {job, epoch}, order: body.job as JobInHand['order']};
      this.orders = 'continue';
      this.phase = 'running';
    }
    return answer;
  }

  /** False when worker-api did not answer or the agent ends. */
  async heartbeat(progress: object | null = null): Promise<boolean> {
    const {phase} = this;
    const lease = this.lease ?? this.job?.lease ?? null;
    const received = {...this.received};
    const {status, body} = await this.#post({action: 'heartbeat', phase, lease, progress, received});
    if (status !== 200) return false;
    if (Array.isArray(body.execs)) this.execs = body.execs;
    const isCurrent = lease === (this.lease ?? this.job?.lease ?? null);
    if (isCurrent && (body.action === 'stop' || body.action === 'cancel' || body.action === 'drain')) {
      this.told.push(body.action);
      this.orders = body.action;
    }
    return !this.hasEnded;
  }

  /** Reads the stream of the lease and plans its shards. */
  async download(): Promise<Plan[] | Failure> {
    const {object, generation} = this.#given.dataset;
    // The look follows the read: a real worker reads one generation.
    const bytes = await this.#objects.read(object, {max_bytes: 1e9});
    const info = await this.#objects.head(object);
    if (!bytes || info?.generation !== generation)
      return {kind: 'stream', reason: `generation ${generation} of ${object} is gone`};
    this.#text = Buffer.from(bytes).toString('utf8');
    return planShards(this.#text);
  }

  /** Whether the shard counts already. A counted shard of other content is a failure. */
  async isStored(plan: Plan): Promise<boolean | Failure> {
    const {stored_shards, kept_shards} = this.#given;
    if (plan.shard > stored_shards && !kept_shards.includes(plan.shard)) return false;
    const name = this.#objectOf(plan);
    const stored = await this.#objects.head(name);
    if (stored && stored.metadata.stream_crc32c !== this.#given.dataset.crc32c)
      return {kind: 'stream', reason: `${name} was made from other content`};
    return stored !== undefined;
  }

  /** Returns a failure while a foreign object is at the place of the shard. The control plane sets it aside. */
  async store(plan: Plan, {epoch} = this.lease as Lease): Promise<Failure | undefined> {
    const [given, name] = [this.#given, this.#objectOf(plan)];
    const metadata = shardMetadata(plan, given, epoch, given.lease_key);
    const outcome = await this.#objects.create(name, shardBytes(plan, given), {metadata});
    if (outcome === 'created') return undefined;
    const stored = await this.#objects.head(name);
    const reason = `${name} is not of this lease`;
    const contradiction = {object: name, found: 'another proof', made: 'a shard of this lease'};
    return stored?.metadata.proof === metadata.proof ? undefined : {kind: 'stream', reason, contradiction};
  }

  async storeMetadata(): Promise<void> {
    const {run, stream} = this.#given;
    const metadata = JSON.stringify(metadataOf(this.#given, this.#text));
    await this.#objects.create(metadataObject(run, stream), Buffer.from(metadata));
  }

  /** False when worker-api did not answer. */
  async release(outcome: string, failure: Failure | null = null): Promise<boolean> {
    const {status} = await this.#post({action: 'release', lease: this.lease, outcome, failure});
    return this.#hasReported(status);
  }

  /** Asks for a command that a heartbeat named: its arguments, or undefined where it is over or nothing answered. */
  async takeExec(exec: string): Promise<{argv: string[]; timeout_s: number} | undefined> {
    const {status, body} = await this.#post({action: 'exec', exec});
    return status === 200 && body.action === 'exec'
      ? (body.exec as {argv: string[]; timeout_s: number})
      : undefined;
  }

  /** Reports the end of a command. False when worker-api did not answer. */
  async endExec(
    exec: string,
    end: {outcome: 'exited' | 'timeout'; exit_code: number | null},
  ): Promise<boolean> {
    return (await this.#post({action: 'exec-end', exec, ...end, error: null})).status < 500;
  }

  /** Reports a version of the checkpoint of the job in hand. */
  storeVersion(version: object): Promise<Answer> {
    return this.#post({action: 'checkpoint', lease: this.job?.lease, version, problem: null});
  }

  /** Reports the end of the job in hand. False when worker-api did not answer. */
  async finish(end: JobEnd): Promise<boolean> {
    const {outcome, cause = null, error = null, exit_code = null, result = null, contradiction = null} = end;
    const report = {outcome, cause, error, result, result_object: null, exit_code, contradiction};
    const {status} = await this.#post({
      ...{action: 'finish', lease: this.job?.lease, ...report},
      ...{has_artifacts: false, ran: null},
    });
    return this.#hasReported(status);
  }

  #hasReported(status: number): boolean {
    this.#reports = status >= 500 ? this.#reports + 1 : 0;
    if (status >= 500 && this.#reports < this.mostReports) return false;
    if (status === 409) this.told.push('409');
    this.#reports = 0;
    this.giveUp();
    return true;
  }

  giveUp(): void {
    this.lease = null;
    this.job = null;
    this.phase = 'idle';
  }

  async #read(): Promise<void> {
    this.phase = 'running';
    const plans = await this.download();
    if (Array.isArray(plans)) this.#left = [...plans];
    else await this.release('failed', plans);
  }

  /** Stores the next missing shard, and gives the stream back after the last. */
  async #storeNext(left: Plan[]): Promise<void> {
    for (let plan = left[0]; plan; plan = left[0]) {
      const isStored = await this.isStored(plan);
      if (typeof isStored === 'object') {
        await this.release('failed', isStored);
        return;
      }
      if (!isStored && plan.final) await this.storeMetadata();
      const foreign = isStored ? undefined : await this.store(plan);
      if (foreign) {
        this.#waits += 1;
        if (this.#waits > MOST_WAITS) await this.release('failed', foreign);
        return;
      }
      this.#waits = 0;
      left.shift();
      if (!isStored) break;
    }
    if (left.length === 0) await this.release('completed');
    else if (this.orders === 'drain') await this.release('drained');
  }

  get #given(): Work {
    if (!this.#work) throw new Error(`${this.worker} has no stream`);
    return this.#work;
  }

  #objectOf({shard}: Plan): string {
    return shardObject(this.#given.run, this.#given.stream, shard, 'safetensors');
  }

  /**
   * Says hello before the first request, and once after a request that was refused for its secret.
   * An order to exit ends the agent, and so does a refusal other than that of a lease: a repeated request cannot help.
   */
  async #post(request: object): Promise<Answer> {
    const {worker, incarnation, host} = this;
    const ask = (question: object) => this.#api({...question, worker, incarnation, host});
    const hello = async () => {
      const said = await ask({action: 'hello', ticket: this.#ticket});
      this.isBound = said.status === 200 && said.body.action === 'continue';
      return said;
    };
    let answer = this.isBound ? await ask(request) : undefined;
    if (!answer || answer.status === 403) {
      answer = await hello();
      if (this.isBound) answer = await ask(request);
    }
    const {status, body} = answer;
    const isRefused = status >= 400 && status < 500 && status !== 409;
    if (isRefused || (status === 200 && body.action === 'exit')) {
      this.told.push(isRefused ? String(status) : 'exit');
      this.hasEnded = true;
    }
    return answer;
  }
}
