/** What runs on a TPU VM, in virtual time: it boots, leases, stores shards, beats beside its work, and believes what it is told. */
import {shardObject} from '../../shared/domain/names.ts';
import type {Objects} from '../../shared/ports.ts';
import {type Plan, planShards, shardMetadata, storedText} from './streams.ts';

export type Answer = {status: number; body: Record<string, unknown>};

export type Surroundings = {
  api: (request: object) => Promise<Answer>;
  objects: Objects;
  sleep: (ms: number) => Promise<void>;
  seconds: (low: number, high: number) => number;
  /** How long its setup takes; there are some that never end. */
  setup_s: number;
  /** Why this machine fails at what it does next, if it does. */
  fault: () => string | null;
  /** Whether it says that a stream is complete when it is not. */
  isLying: () => boolean;
};

type Lease = {run: string; stream: string; epoch: number};
type Work = {
  run: string;
  stream: string;
  dataset: {object: string; generation: string; crc32c: string};
  spec_hash: string;
};

const RETRY_MS = 5_000;
const BEAT_MS = 30_000;

export class SimAgent {
  readonly worker: string;
  readonly incarnation: number;
  hasEnded = false;
  #lease: Lease | null = null;
  #orders: 'continue' | 'drain' | 'stop' = 'continue';
  #phase = 'setup';
  #shards = 0;
  readonly #world: Surroundings;

  constructor(worker: string, incarnation: number, world: Surroundings) {
    this.worker = worker;
    this.incarnation = incarnation;
    this.#world = world;
  }

  async live(): Promise<void> {
    await this.#world.sleep(this.#world.seconds(1, 20) * 1000);
    void this.#beat();
    await this.#world.sleep(this.#world.setup_s * 1000);
    this.#phase = 'idle';
    while (!this.hasEnded) {
      const {status, body} = await this.#ask({action: 'lease', loaded: null});
      if (status === 200 && body.action === 'exit') this.hasEnded = true;
      else if (status === 200 && body.action === 'work')
        await this.#work(body.lease as Lease, body.work as Work);
      else await this.#world.sleep(status === 200 ? Number(body.retry_s) * 1000 : RETRY_MS * 4);
    }
  }

  /** 30 seconds are left: the stream is given back. */
  async preempted(): Promise<void> {
    const lease = this.#lease;
    this.hasEnded = true;
    if (lease) await this.#ask({action: 'release', lease, outcome: 'preempted', failure: null});
  }

  async #beat(): Promise<void> {
    while (!this.hasEnded) {
      const lease = this.#lease;
      const {status, body} = await this.#ask({
        action: 'heartbeat',
        phase: this.#phase,
        lease,
        progress: this.#progress(),
      });
      if (status === 200 && body.action === 'exit') this.hasEnded = true;
      if (status === 200 && lease === this.#lease && (body.action === 'stop' || body.action === 'drain'))
        this.#orders = body.action;
      await this.#world.sleep(BEAT_MS);
    }
  }

  async #work(given: Lease, work: Work): Promise<void> {
    const lease = {run: given.run, stream: given.stream, epoch: given.epoch};
    this.#lease = lease;
    this.#shards = 0;
    this.#orders = 'continue';
    this.#phase = 'loading';
    const [outcome, failure] = await this.#extract(lease, work);
    this.#phase = 'idle';
    if (outcome === 'lost' || this.hasEnded) this.#lease = null;
    else await this.#release(lease, outcome, failure);
  }

  async #extract(lease: Lease, work: Work): Promise<[string, object | null]> {
    const {objects} = this.#world;
    const {object, generation} = work.dataset;
    // In this order: a real worker reads one generation, and what is read here must not be newer than what is looked at.
    const bytes = await this.#persist(() => objects.read(object, {max_bytes: 1e9}));
    const info = await this.#persist(() => objects.head(object));
    if (!bytes || info?.generation !== generation)
      return ['failed', {kind: 'stream', reason: `generation ${generation} of ${object} is gone`}];
    this.#phase = 'compiling';
    await this.#world.sleep(this.#world.seconds(0, 30) * 1000);
    this.#phase = 'running';
    for (const plan of this.#asUploaded(planShards(Buffer.from(bytes).toString('utf8')))) {
      if (this.hasEnded || this.#orders === 'stop') return ['lost', null];
      const reason = this.#world.fault();
      if (reason) return ['failed', {kind: 'infrastructure', reason}];
      const name = shardObject(work.run, work.stream, plan.shard, 'safetensors');
      this.#shards += 1;
      const stored = await this.#persist(() => objects.head(name));
      if (stored && stored.metadata.stream_crc32c !== work.dataset.crc32c)
        return ['failed', {kind: 'stream', reason: `${name} was made from other content`}];
      if (stored) continue;
      if (this.#world.isLying()) return ['completed', null];
      await this.#world.sleep(this.#world.seconds(5, 120) * 1000);
      if (this.hasEnded || (this.#orders as string) === 'stop') return ['lost', null];
      const metadata = shardMetadata(plan, work, lease.epoch);
      if (plan.final) this.#phase = 'uploading';
      await this.#persist(() => objects.create(name, Buffer.from(storedText(plan)), {metadata}));
      if (this.#orders === 'drain' && !plan.final) return ['drained', null];
    }
    return ['completed', null];
  }

  /** Several uploads are under way at once: a shard may be stored before the one in front of it, but for the last. */
  #asUploaded(plans: Plan[]): Plan[] {
    const order = [...plans];
    for (let place = 0; place + 2 < order.length; place++) {
      const [first, second] = [order[place], order[place + 1]];
      if (first && second && this.#world.seconds(0, 1) < 0.3) order.splice(place, 2, second, first);
    }
    return order;
  }

  #progress(): object | null {
    if (!this.#lease) return null;
    return {
      samples_done: 0,
      samples_total: null,
      tokens_done: 0,
      shards_done: this.#shards,
      tokens_per_s: null,
    };
  }

  async #release(lease: Lease, outcome: string, failure: object | null): Promise<void> {
    for (;;) {
      const {status} = await this.#ask({action: 'release', lease, outcome, failure});
      if (status < 500 || this.hasEnded) break;
      await this.#world.sleep(RETRY_MS);
    }
    this.#lease = null;
  }

  async #persist<T>(call: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await call();
      } catch {
        await this.#world.sleep(RETRY_MS);
      }
    }
  }

  /** A refusal other than that of a lease ends the agent: asking again cannot help. */
  async #ask(request: object): Promise<Answer> {
    const {worker, incarnation} = this;
    const answer = await this.#world.api({...request, worker, incarnation, host: 0});
    if (answer.status >= 400 && answer.status < 500 && answer.status !== 409) this.hasEnded = true;
    return answer;
  }
}
