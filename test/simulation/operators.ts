/** Operators drop streams, drop them again, overwrite them, and send valid and invalid messages. */

import {labelsOf} from '../../shared/domain/deployment.ts';
import {slotsOf} from '../../shared/domain/fleet/slots.ts';
import {paths, streamId, streamObject} from '../../shared/domain/names.ts';
import type {Pool} from '../../shared/domain/records/pool.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Document} from '../../shared/ports/ports.ts';
import {someLines} from '../world/shard-plan.ts';
import {type Context, WIDE_SLOTS} from './context.ts';
import type {Delivery} from './delivery.ts';
import type {Jobs} from './jobs.ts';
import {aCommand, anInvalidMessage, oppositeOf} from './operator-messages.ts';
import type {Orders} from './orders.ts';
import type {SecondPool} from './second-pool.ts';

const MAX_MESSAGES = 10;
const BUSY_MESSAGES = 40;

export class Operators {
  readonly #context: Context;
  readonly #delivery: Delivery;
  readonly #jobs: Jobs;
  readonly #second: SecondPool;
  readonly #orders: Orders;
  readonly #retries = new Map<string, number>();

  constructor(context: Context, delivery: Delivery, jobs: Jobs, second: SecondPool, orders: Orders) {
    this.#context = context;
    this.#jobs = jobs;
    this.#second = second;
    this.#orders = orders;
    this.#delivery = delivery;
  }

  /** The runs of a world with a far bucket: the first has the permission from its start, the second gets it in the calm. */
  planRegions(): void {
    const {isFar, objects} = this.#context;
    const spec = JSON.stringify({allow_cross_region: true});
    if (isFar) this.#context.after(0, () => objects.put('datasets/run-0/run.json', spec));
  }

  planDrops(): void {
    const {chance, options} = this.#context;
    if (options.plan) {
      for (const [stream, lines] of options.plan.lines.entries()) this.#planStream(0, stream, lines);
      return;
    }
    if (this.#context.isWide) {
      this.#planWide();
      return;
    }
    const hasLines = this.#context.drawsOf('single lines') !== undefined;
    for (let run = 0, runs = this.#context.count('second run', 2); run < runs; run++)
      for (
        let stream = 0, streams = this.#context.count('second stream', hasLines ? 1 : 3);
        stream < streams;
        stream++
      )
        this.#planStream(run, stream, chance.integer(1, hasLines ? 1 : 9));
  }

  /** Plans four runs of about fifty streams. In some worlds each stream of one run has a fixed slot. */
  #planWide(): void {
    const {chance, objects} = this.#context;
    const fixed = chance.happens(0.5) ? 3 : undefined;
    for (let run = 0; run < 4; run++) {
      if (run === fixed)
        this.#context.after(0, () =>
          objects.put('datasets/run-3/run.json', JSON.stringify({affinity: 'fixed'})),
        );
      for (let stream = 0, streams = chance.integer(10, 15); stream < streams; stream++)
        this.#planStream(run, stream, chance.integer(1, 5));
    }
  }

  #planStream(run: number, stream: number, lines: number): void {
    const {chance} = this.#context;
    const invalidLine = chance.happens(this.#context.drawsOf('single lines') ? 0.7 : 0.3)
      ? chance.integer(0, lines - 1)
      : undefined;
    const name = streamObject(`run-${run}`, streamId(stream));
    const text = someLines(lines, `${run}/${stream}`, invalidLine);
    this.#context.after(this.#context.minutes(0, 12), () => this.#drop(name, text));
    if (chance.happens(0.1)) this.#context.after(this.#context.minutes(12, 30), () => this.#drop(name, text));
    if (this.#context.strikes('overwrite')) {
      const other = someLines(chance.integer(1, 9), `${run}/${stream} anew`);
      this.#context.after(this.#context.minutes(0, 30), () => this.#drop(name, other));
    }
  }

  #drop(name: string, text: string): void {
    this.#context.note(() => `an operator drops ${name}`);
    this.#context.drop(name, text);
  }

  planMessages(): void {
    const {chance, faults} = this.#context;
    const probability = this.#context.isBusy ? 1 : faults.meddling > 0 ? 0.6 + 0.4 * faults.meddling : 0;
    const most = this.#context.isBusy ? BUSY_MESSAGES : MAX_MESSAGES;
    for (let count = 0; chance.happens(probability) && count < most; count++)
      this.#context.after(this.#context.minutes(1, 25), () => {
        if (this.#context.isCalm) return;
        this.#context.see('fault: meddling');
        if (chance.happens(0.15)) this.#send(anInvalidMessage(this.#context), 'rejected');
        else this.#sendCommand();
      });
  }

  /** Plans a node of another owner with the name of a slot, unless the slot has a node of Gleaner at that time. */
  planForeign(): void {
    const {chance, config, store} = this.#context;
    if (!this.#context.strikes('foreign')) return;
    const name = `${config.pool.pool}-us-central1-a-${chance.pick([0, 7])}`;
    this.#context.after(this.#context.minutes(0, 25), () => {
      const phase = store.peek(paths.worker(name))?.phase ?? 'gone';
      if (phase === 'gone' || phase === 'creating')
        this.#addNode(name, 'us-central1-a', {'managed-by': 'another-owner'});
    });
  }

  /** Plans a node with Gleaner's label whose name fits no slot. */
  planStray(): void {
    if (!this.#context.strikes('stray')) return;
    const [zone = ''] = this.#context.tpus.zones.keys();
    const {deployment} = this.#context.config;
    this.#context.after(this.#context.minutes(0, 25), () =>
      this.#addNode(`tpu-of-an-older-${deployment}`, zone, labelsOf(deployment)),
    );
  }

  #addNode(name: string, zone: string, labels: Record<string, string>): void {
    const {clockwork, isCalm, tpus} = this.#context;
    if (isCalm || tpus.nodes.has(name) || tpus.queue.has(name)) return;
    const created_at = iso(clockwork.now);
    const health = {health: 'HEALTHY', symptoms: [], queued: null};
    tpus.add({name, zone, state: 'READY', ...health, labels, created_at});
  }

  /** Sends a command, and often the opposite command soon after. The two may arrive in either order. */
  #sendCommand(): void {
    const {chance} = this.#context;
    const message = aCommand(this.#context);
    this.#send(message);
    const opposite = oppositeOf(message);
    if (opposite && chance.happens(this.#context.isBusy ? 0.9 : 0.5))
      this.#context.after(10_000 * chance.next(), () => this.#send(opposite));
  }

  #send(message: Document, outcome?: 'rejected'): void {
    if (message.action === 'stop') this.#sendAfterStop(String(message.run));
    this.#delivery.command(message, outcome);
  }

  /** Often sends another message after a stop. That message changes nothing, because a stop is final. */
  #sendAfterStop(run: string): void {
    const {chance, invariants} = this.#context;
    invariants.operatorIntent.onStop(run);
    if (!this.#context.isBusy && chance.happens(0.5)) return;
    const action = chance.pick(['start', 'resume', 'pause', 'retry']);
    const delay_ms = chance.happens(0.5) ? 10_000 * chance.next() : this.#context.minutes(1, 10);
    this.#context.after(delay_ms, () => this.#send({action, run}));
  }

  /** Plans the recovery of a lost database: early, late or never, by a rebuild or by a start of each run. */
  planRecovery(): void {
    const {chance} = this.#context;
    const soon = this.#context.drawsOf('lost database');
    if (soon) this.#context.after(soon.between(5, 40) * 1000, () => this.#send({action: 'rebuild'}));
    if (chance.happens(0.3)) return;
    this.#context.after(this.#context.minutes(0, 20), () => {
      if (chance.happens(0.8)) this.#send({action: 'rebuild'});
      else for (const run of this.#context.runs()) this.#send({action: 'start', run});
    });
  }

  /** Dropped streams that are not completed and whose run is not stopped. */
  unfinished(): {name: string; run: string; stream: string; document: Document | undefined}[] {
    const {store, streams} = this.#context;
    return [...streams.keys()].flatMap(name => {
      const [, run = '', file = ''] = name.split('/');
      const stream = file.slice(7, 10);
      const document = store.peek(paths.stream(run, stream));
      const parent = store.peek(paths.run(run));
      const isIgnored = document === undefined && this.#context.isTooLate(parent, name);
      const isDone =
        document?.status === 'completed' || parent?.status === 'stopped' || parent?.expired_at || isIgnored;
      return isDone ? [] : [{name, run, stream, document}];
    });
  }

  /** Sends the messages that unfinished streams need: a budget, slots, a resume, or a retry. */
  intervene(): void {
    const unfinished = this.unfinished();
    if (unfinished.length === 0 && this.#jobs.unfinished().length === 0) return;
    const {config, store, tpus} = this.#context;
    const pool = (store.peek(paths.pool(config.pool.pool)) as Pool | undefined) ?? config.pool;
    // A stream with fixed affinity needs a pool that has its slot.
    const workers_per_zone = this.#context.isWide ? WIDE_SLOTS : 1;
    const zones = [...tpus.zones.keys()];
    const isSmall = pool.workers_per_zone < workers_per_zone || pool.zones.length < zones.length;
    if (pool.budget_usd !== null || (isSmall && (this.#context.isWide || pool.workers_per_zone === 0)))
      this.#send({action: 'scale', budget_usd: null, workers_per_zone, zones});
    for (const {name} of slotsOf(pool))
      if (store.peek(paths.worker(name))?.held) this.#send({action: 'recreate', worker: name});
    this.#second.intervene();
    this.#orders.intervene();
    // Only a deployment changes the month budget: no message does.
    config.ceilings.max_budget_usd = null;
    for (const run of new Set(unfinished.map(({run}) => run))) this.#unpause(run);
    for (const {name, run, stream, document} of unfinished) {
      const info = this.#context.objects.info(name);
      if (document?.status === 'failed') this.#retry(name, run, stream);
      // A resync comes before the operators to a stream whose event was lost.
      else if (document ? document.generation !== info?.generation : this.#context.isResynced)
        this.#send({action: 'start', run});
    }
  }

  #unpause(run: string): void {
    const found = this.#context.store.peek(paths.run(run));
    if (found && found.budget_usd !== null) this.#send({action: 'configure', run, budget_usd: null});
    if (found?.status !== 'paused') return;
    if (String(found.reason).includes('allow_cross_region'))
      this.#send({action: 'configure', run, allow_cross_region: true});
    // A run without its model tries it again by itself.
    if (found.model_next_at === null) this.#send({action: 'resume', run});
  }

  /** Retries a stream, or drops each of its contents in turn, because the stored shards match only one content. */
  #retry(name: string, run: string, stream: string): void {
    const contents = this.#context.streams.get(name) ?? [];
    const retries = this.#retries.get(name) ?? 0;
    this.#retries.set(name, retries + 1);
    const content = contents[retries % contents.length] ?? '';
    if (contents.length === 1 && this.#context.chance.happens(0.5))
      this.#send({action: 'retry', run, stream});
    else this.#drop(name, content);
  }
}
