/** What runs on a TPU VM, as small as it can be: it asks, it uploads shards, and it believes what it is told. */
import {crc32} from 'node:zlib';
import {metadataObject, shardObject, workerIdOf} from '../../shared/domain/names.ts';
import type {Objects} from '../../shared/ports.ts';

export type Api = (request: object) => Promise<{status: number; body: Record<string, unknown>}>;

type Work = {
  run: string;
  stream: string;
  dataset: {object: string; generation: string; crc32c: string};
  spec_hash: string;
};
type Lease = {run: string; stream: string; epoch: number};
type Failure = {kind: 'stream' | 'model' | 'infrastructure'; reason: string};

export const LINES_PER_SHARD = 2;
/** A line that an agent rejects. */
export const BAD_LINE = 'not JSON';

export type Plan = {shard: number; first: number; last: number; lines: string[]; final: boolean};

/** Which lines go into which shard: it follows from the stream alone, as it does for a real worker. */
export function planShards(text: string): Plan[] {
  const lines = text.replace(/\n$/, '').split('\n');
  const plans: Plan[] = [];
  for (let first = 0; first < lines.length; first += LINES_PER_SHARD) {
    const part = lines.slice(first, first + LINES_PER_SHARD);
    const last = first + part.length - 1;
    plans.push({shard: plans.length + 1, first, last, lines: part, final: last === lines.length - 1});
  }
  return plans;
}

/** A stream of so many lines, each unlike any other. */
export function someLines(count: number, prefix = 'line'): string {
  return Array.from({length: count}, (_, index) => `{"text":"${prefix} ${index}"}\n`).join('');
}

/** The metadata.json of a stream of these shards; every token has one row. */
export function metadataOf(
  {run, stream, spec_hash}: {run: string; stream: string; spec_hash: string},
  text: string,
) {
  const plans = planShards(text);
  const good = plans.flatMap(({lines}) => lines).filter(line => line !== BAD_LINE);
  const tokens = good.join('').length;
  const sha256 = 'b'.repeat(64);
  return {
    schema: 'gleaner/1',
    run,
    worker_id: workerIdOf(stream),
    spec_hash,
    total_samples: good.length,
    total_rejected: plans.flatMap(({lines}) => lines).length - good.length,
    total_truncated: 0,
    total_tokens: tokens,
    total_rows: tokens,
    total_shards: plans.length,
    stats: {'resid_post.0': {mean: good.length, norm: 2, max_abs: tokens, non_finite: 0}},
    model: {
      name: 'tiny',
      revision: null,
      fingerprint: 'f'.repeat(16),
      weights_sha256: sha256,
      tokenizer_sha256: sha256,
      files: {'config.json': sha256},
    },
    versions: {jax: '0.10.2'},
    code: null,
    shards: plans.map(({shard}) => ({shard_id: shard})),
  };
}

export class Agent {
  readonly worker: string;
  readonly incarnation: number;
  /** Every answer to a heartbeat or a release that was not `continue`. */
  readonly told: string[] = [];
  /** Says nothing and does nothing: READY but dead. */
  silent = false;
  /** Leaves with this instead of uploading its next shard. */
  failure: Failure | undefined;
  state: 'setup' | 'asking' | 'working' | 'ended' = 'setup';
  lease: Lease | null = null;
  #work: Work | undefined;
  #text = '';
  /** What is left to store; undefined until the stream was read. */
  #left: Plan[] | undefined;
  #orders: 'continue' | 'drain' = 'continue';
  readonly #api: Api;
  readonly #objects: Objects;

  constructor(worker: string, incarnation: number, api: Api, objects: Objects) {
    this.worker = worker;
    this.incarnation = incarnation;
    this.#api = api;
    this.#objects = objects;
  }

  /** Says that it lives, as it does all the time beside its work, and hears what it is to do. */
  async beat(): Promise<void> {
    if (this.silent || this.state === 'ended') return;
    await this.#heartbeat(this.state === 'working' ? 'running' : this.state === 'setup' ? 'setup' : 'idle');
  }

  /** One thing: a request, or a shard. A request that fails is repeated by the next step. */
  async step(): Promise<void> {
    if (this.silent || this.state === 'ended') return;
    if (this.state === 'setup') {
      if (await this.#heartbeat('setup')) this.state = 'asking';
    } else if (this.state === 'asking') await this.#ask();
    else if (this.failure) await this.#release('failed', this.failure);
    else if (!this.#left && this.#work) await this.#download(this.#work);
    else await this.#upload(this.#left ?? []);
  }

  /** The machine has 30 seconds left: what is computed is stored, and the stream is given back. */
  async preempted(): Promise<void> {
    if (this.state === 'working') await this.#release('preempted');
    this.state = 'ended';
  }

  async #ask(): Promise<void> {
    const {status, body} = await this.#post({action: 'lease', loaded: null});
    if (status !== 200) return;
    if (body.action === 'exit') this.#end('exit');
    if (body.action !== 'work') return;
    const {run, stream, epoch} = body.lease as Lease;
    this.lease = {run, stream, epoch};
    this.#work = body.work as Work;
    this.#orders = 'continue';
    this.#left = undefined;
    this.state = 'working';
    await this.#download(this.#work);
  }

  async #download({run, stream, dataset}: Work): Promise<void> {
    const object = await this.#objects.head(dataset.object);
    const bytes = await this.#objects.read(dataset.object, {max_bytes: 1e9});
    if (!bytes || object?.generation !== dataset.generation) {
      const reason = `generation ${dataset.generation} of ${dataset.object} is gone`;
      return this.#release('failed', {kind: 'stream', reason});
    }
    const stored = new Set((await this.#objects.list(`activations/`)).map(({name}) => name));
    this.#text = Buffer.from(bytes).toString('utf8');
    const plans = planShards(this.#text);
    this.#left = plans.filter(plan => !stored.has(shardObject(run, stream, plan.shard, 'safetensors')));
  }

  async #upload(left: Plan[]): Promise<void> {
    const [plan] = left;
    const work = this.#work;
    if (plan && work && this.lease) {
      if (plan.final)
        await this.#objects.create(
          metadataObject(work.run, work.stream),
          Buffer.from(JSON.stringify(metadataOf(work, this.#text))),
        );
      const samples = plan.lines.filter(line => line !== BAD_LINE);
      await this.#objects.create(
        shardObject(work.run, work.stream, plan.shard, 'safetensors'),
        Buffer.from(samples.join('\n')),
        {
          metadata: {
            schema: 'gleaner/1',
            run: work.run,
            stream: work.stream,
            shard: String(plan.shard),
            first_sample: String(plan.first),
            last_sample: String(plan.last),
            samples: String(samples.length),
            rejected: String(plan.lines.length - samples.length),
            tokens: String(samples.join('').length),
            spec_hash: work.spec_hash,
            stream_crc32c: work.dataset.crc32c,
            tokens_sha256: String(crc32(samples.join('\n'))),
            epoch: String(this.lease.epoch),
            format: 'safetensors',
            final: String(plan.final),
          },
        },
      );
    }
    left.shift();
    if (left.length === 0) await this.#release('completed');
    else if (this.#orders === 'drain') await this.#release('drained');
  }

  async #heartbeat(phase: string): Promise<boolean> {
    const {status, body} = await this.#post({action: 'heartbeat', phase, lease: this.lease, progress: null});
    if (status !== 200) return false;
    if (body.action === 'exit') this.#end('exit');
    if (body.action === 'stop') this.#giveUp('stop');
    if (body.action === 'drain') {
      this.told.push('drain');
      this.#orders = 'drain';
    }
    return body.action !== 'exit';
  }

  async #release(outcome: string, failure: Failure | null = null): Promise<void> {
    const {status} = await this.#post({action: 'release', lease: this.lease, outcome, failure});
    if (status === 409) this.#giveUp('409');
    if (status !== 200) return;
    this.lease = null;
    this.state = 'asking';
  }

  #giveUp(why: string): void {
    this.told.push(why);
    this.lease = null;
    this.state = 'asking';
  }

  #end(why: string): void {
    this.told.push(why);
    this.state = 'ended';
  }

  async #post(request: object) {
    const {worker, incarnation} = this;
    const answer = await this.#api({...request, worker, incarnation, host: 0});
    if (answer.status >= 400 && answer.status !== 409 && answer.status < 500)
      this.#end(String(answer.status));
    return answer;
  }
}
