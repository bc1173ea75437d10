/** In some worlds operators run commands on hosts, clear and retry jobs, change the source of pools, and pause, shrink and resume them. */
import {labelsOf, nameIn} from '../../shared/domain/deployment.ts';
import {paths} from '../../shared/domain/names.ts';
import type {Pool} from '../../shared/domain/records/pool.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Document} from '../../shared/ports/ports.ts';
import type {Chance} from '../world/clock.ts';
import type {Context} from './context.ts';
import type {Delivery} from './delivery.ts';
import type {SecondPool} from './second-pool.ts';

const MOST = 14;
const CAUSES = ['exit', 'timeout', 'machine', 'setup', 'deadline', 'budget'];

/** Kinds of orders, as often as each is drawn. */
const KINDS = ['exec', 'exec', 'exec', 'clear', 'retry', 'update', 'pause', 'shrink'] as const;

export class Orders {
  readonly #context: Context;
  readonly #delivery: Delivery;
  readonly #second: SecondPool;
  #commands = 0;

  constructor(context: Context, delivery: Delivery, second: SecondPool) {
    this.#context = context;
    this.#delivery = delivery;
    this.#second = second;
    const chance = context.drawsOf('orders');
    if (!chance) return;
    for (let count = chance.integer(3, MOST); count > 0; count--)
      context.after(chance.between(3, 28) * 60_000, () => context.isCalm || this.#order(chance));
    context.after(chance.between(0, 10) * 60_000, () => this.#addNeighbour());
  }

  /** A node of a deployment whose name begins with the name of this one. */
  #addNeighbour(): void {
    const {clockwork, config, isCalm, tpus} = this.#context;
    const [zone = ''] = tpus.zones.keys();
    const deployment = `${config.deployment}-b`;
    const name = `${nameIn(deployment, 'tpu')}-${zone}-0`;
    if (isCalm || tpus.nodes.has(name)) return;
    const health = {health: 'HEALTHY', symptoms: [], queued: null};
    const labels = {...labelsOf(deployment), 'gleaner-incarnation': '1'};
    tpus.add({name, zone, state: 'READY', ...health, labels, created_at: iso(clockwork.now)});
  }

  #order(chance: Chance): void {
    const {config} = this.#context;
    const pool = chance.pick([config.pool.pool, config.pool.pool, this.#second.name]);
    const before_at = iso(this.#context.clockwork.now - chance.between(-2, 8) * 60_000);
    const kind = chance.pick(KINDS);
    switch (kind) {
      case 'exec':
        this.#exec(pool, chance);
        break;
      case 'clear':
        this.#send({action: 'clear', ...(chance.happens(0.6) ? {before_at} : {})});
        break;
      case 'retry':
        this.#send({action: 'retry', where: {cause: chance.pick(this.#causes())}});
        break;
      case 'update':
        this.#send({action: 'update', pool, ...aSource(chance)});
        break;
      case 'pause':
        this.#send({action: 'pause', pool});
        this.#later({action: 'resume', pool}, chance);
        break;
      case 'shrink':
        this.#send({action: 'scale', pool, workers_per_zone: 0});
        this.#later({action: 'scale', pool, workers_per_zone: 1}, chance);
        break;
    }
  }

  /** Causes of the jobs that have failed, or all causes if no job has failed. */
  #causes(): string[] {
    const {config, store} = this.#context;
    const jobs = store.collection(config.jobs_collection).map(({data}) => data);
    const failed = jobs.filter(({status, cause}) => status === 'failed' && CAUSES.includes(String(cause)));
    return failed.length > 0 ? failed.map(({cause}) => String(cause)) : CAUSES;
  }

  #send(message: Document): void {
    this.#delivery.command(message);
  }

  /** The opposite message often follows, sometimes so soon that it may arrive first. */
  #later(message: Document, chance: Chance): void {
    const minutes = chance.happens(0.3) ? 0.1 : chance.between(1, 15);
    if (chance.happens(0.8)) this.#context.after(minutes * 60_000, () => this.#send(message));
  }

  /** A command that takes some seconds and ends with a code. An id is sometimes taken already. */
  #exec(pool: string, chance: Chance): void {
    const {tpus} = this.#context;
    const isTaken = this.#commands > 0 && chance.happens(0.15);
    const exec = `exec-${isTaken ? 0 : this.#commands++}`;
    const target = chance.pick(['all', 'all', pool, pool, [...tpus.nodes.keys()][0] ?? pool, 'nowhere']);
    const argv = [String(chance.integer(1, 90)), String(chance.pick([0, 0, 1, 7]))];
    this.#delivery.exec({exec, target, argv, timeout_s: chance.pick([30, 300])});
  }

  /** Resumes the pools that a person paused. */
  intervene(): void {
    const {config, store} = this.#context;
    for (const pool of [config.pool.pool, this.#second.name])
      if ((store.peek(paths.pool(pool)) as Pool | undefined)?.limiter?.cause === 'person')
        this.#send({action: 'resume', pool});
  }

  /** Commands that have not ended. */
  unfinished(): string[] {
    const open = this.#context.store.collection('execs').filter(({data}) => data.status === 'running');
    return open.map(({id}) => id);
  }
}

function aSource(chance: Chance): Document {
  return chance.pick<Document>([
    {},
    {source: {bundle: 'c'.repeat(64)}},
    {source: null},
    {environment: {jax_version: 'newest'}},
    {environment: {setup_script: 'true'}},
  ]);
}
