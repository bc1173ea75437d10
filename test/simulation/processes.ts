/** The instances of the functions. An instance may crash at any call, and each instance has its own memory. */

import type {Log} from '../../shared/control-plane/calls/log.ts';
import type {TickQueue} from '../../shared/control-plane/calls/tick-queue.ts';
import type {Deps} from '../../shared/control-plane/deps.ts';
import type {Document} from '../../shared/ports/ports.ts';
import {T0} from '../world/builders.ts';
import {AS_CONTROL, askWorkerApi} from '../world/bus.ts';
import type {Call} from '../world/call.ts';
import type {Chance} from '../world/clock.ts';
import {accountOf, type Memory} from '../world/deps.ts';
import {MINUTE_MS} from './conditions/times.ts';
import type {Context} from './context.ts';
import type {Actor} from './invariants/violations.ts';
import type {Code, Codes} from './planting/code.ts';

const STORE_VERBS = ['get', 'query', 'count', 'sum', 'tx.get', 'commit'];
/** Verbs whose permission an operator may remove. */
export const PERMISSIONS = ['publish', 'tpus.list', 'tpus.get', 'tpus.create', 'tpus.delete', 'list', 'ping'];

/** The longest call in worlds with slow calls. A tick makes many calls, each of a tenth of this time. */
const MOST_SLOW_MS = 3000;

/** Worker bundle of the next release. */
const NEXT_BUNDLE = 'd'.repeat(64);

/** An instance of a function. The calls of a dead instance never end. */
export type Process = {
  name: string;
  isDead: boolean;
  skew_ms: number;
  code: Code;
  memory: Memory;
  /** The tick queue of the instance. Ticks run in one instance, and during a deployment in two. */
  ticks?: TickQueue;
};

export class Processes {
  readonly #context: Context;
  readonly #publish: (topic: string, message: Document) => string;
  readonly #codes: Codes;
  #instances: Process[] = [];
  #count = 0;
  #ticking: Process | undefined;
  /** Instances with a running tick. */
  readonly #inTick = new Set<Process>();
  calls_made = 0;
  readonly #slow: {draws: Chance; from: number; to: number} | undefined;
  readonly #collisions: Chance | undefined;

  constructor(context: Context, codes: Codes, publish: (topic: string, message: Document) => string) {
    this.#context = context;
    this.#codes = codes;
    const draws = context.drawsOf('slow ticks');
    const from = T0 + (draws?.between(2, 8) ?? 0) * MINUTE_MS;
    this.#slow = draws && {draws, from, to: from + draws.between(10, 25) * MINUTE_MS};
    this.#publish = publish;
    this.#collisions = context.drawsOf('collisions');
  }

  /** Returns a living instance or a new one. */
  instance(): Process {
    const {chance, faults} = this.#context;
    this.#instances = this.#instances.filter(({isDead}) => !isDead);
    if (chance.happens(0.7) && this.#instances.length > 0) return chance.pick(this.#instances);
    this.#count += 1;
    const skew_ms = Math.round(chance.between(-1, 1) * faults.skew_s * 1000);
    if (skew_ms !== 0) this.#context.see('fault: skew_s');
    const code = this.#code();
    const name = `instance ${this.#count}${code === this.#codes.current ? '' : ' (next release)'}`;
    const process: Process = {name, isDead: false, skew_ms, memory: code.newMemory(), code};
    this.#instances = [...this.#instances.slice(-2), process];
    return process;
  }

  /** Returns the instance of on-tick. Sometimes starts a new one while the old one still runs, as a deployment does. */
  tickInstance(): Process {
    const {chance, isCalm} = this.#context;
    const isDeployed = !isCalm && chance.happens(0.03);
    // A deployment ends: no instance of an earlier release goes on in the calm.
    const isLate = isCalm && this.#ticking !== undefined && this.#ticking.code !== this.#code();
    if (isLate) this.killAll();
    if (!this.#ticking || this.#ticking.isDead || isDeployed || isLate) this.#ticking = this.instance();
    return this.#ticking;
  }

  /** During a rollout each new instance runs one of two releases. In the calm all new instances run one. */
  #code(): Code {
    const {current, next} = this.#codes;
    if (!next) return current;
    if (this.#context.isCalm) return this.#context.isRolledBack ? current : next;
    return this.#context.strikes('rollout') ? next : current;
  }

  /** Each release comes with a worker bundle of its own. */
  #bundleOf({code}: Process): string {
    return code === this.#codes.next ? NEXT_BUNDLE : this.#context.config.bundle;
  }

  killAll(): void {
    for (const process of this.#instances) process.isDead = true;
  }

  /** The dependencies of the process for calls that `actor` causes. */
  deps(process: Process, actor?: Actor): Deps {
    const context = this.#context;
    const call = this.calls(process, actor);
    const now = () => context.clockwork.now + process.skew_ms;
    const log: Log = (severity, message) => context.note(() => `${process.name} ${severity} ${message}`);
    const {runMarks, ...memory} = process.memory;
    const store = process.code.withRunMarks({store: context.store.through(call), runMarks, now, log});
    return {
      store: context.receiver ? process.code.withNotices(store, now) : store,
      webhook: context.receiver?.through(call),
      objects: context.objects.through(call),
      checkpoints: context.objects.through(call),
      tpus: (context.project ?? context.tpus).through(call),
      bus: {publish: (topic, message) => call('publish', () => this.#publish(topic, message))},
      catalog: {page: token => call('catalog', () => {}).then(() => context.catalog.page(token))},
      // Agents of a simulated world write to its bucket without a token.
      tokens: {issue: () => Promise.reject(new Error('a simulated world issues no tokens'))},
      secrets: {read: () => Promise.reject(new Error('a simulated world has no secrets'))},
      ping: () => this.#ping(call),
      accountOf,
      now,
      log,
      config: {...context.config, bundle: this.#bundleOf(process)},
      ticks: this.#ticksOf(process),
      ...memory,
      startupScript: async () => '#!/bin/bash\n',
    };
  }

  /** Sends a ping to an instance of worker-api, on the same path as the requests of workers. */
  async #ping(call: Call): Promise<void> {
    await call('ping', () => {
      if (this.#context.isApiOut) throw new Error('worker-api is unavailable');
    });
    const process = this.instance();
    let answered = 0;
    const asking = askWorkerApi(
      process.code.workerApi,
      this.deps(process),
      AS_CONTROL,
      {action: 'ping'},
      status => {
        answered = status;
      },
    );
    // A crashed instance sends no answer.
    await Promise.race([asking, this.#rejectAfter(MINUTE_MS)]);
    if (answered !== 200) throw new Error(`worker-api answered ${answered}`);
  }

  /** The tick queue of the instance, with calls of the invariants at the start and the end of each tick. */
  #ticksOf(process: Process): TickQueue {
    if (process.ticks) return process.ticks;
    const {clockwork, invariants} = this.#context;
    const now = () => clockwork.now;
    const sleep = (ms: number) =>
      new Promise<void>(resolve => this.#context.after(ms, () => process.isDead || resolve()));
    const queue = process.code.newTickQueue({now, sleep});
    const request = queue.request.bind(queue);
    queue.request = (source, tick) =>
      request(source, async () => {
        const started = invariants.onTickStarted();
        if ([...this.#inTick].some(other => other !== process && !other.isDead))
          this.#context.see('at the same time: two ticks');
        this.#inTick.add(process);
        await tick().finally(() => this.#inTick.delete(process));
        invariants.onTickEnded(started);
      });
    process.ticks = queue;
    return queue;
  }

  #rejectAfter(ms: number): Promise<never> {
    return new Promise((_, reject) => this.#context.after(ms, () => reject(new Error('no answer'))));
  }

  /** At every call of a service the caller may crash, the service may refuse, or the answer may be lost. */
  calls(process: Process, actor?: Actor): Call {
    const context = this.#context;
    return (verb, effect) =>
      new Promise((resolve, reject) => {
        context.after(this.latency() + this.#slowness(actor), () => {
          if (process.isDead) return;
          this.calls_made += 1;
          if (this.#crashes(process, this.calls_made, `before ${verb}`)) return;
          const isOut = context.isStoreOut && STORE_VERBS.includes(verb);
          if (isOut || verb === context.refused || context.strikes('refusal')) {
            reject(new Error(`${verb} is unavailable`));
            return;
          }
          let answer: () => void;
          context.isDangerous = false;
          context.invariants.actor = actor;
          try {
            const value = effect();
            answer = () => resolve(value);
          } catch (error) {
            answer = () => reject(error);
          }
          context.invariants.actor = undefined;
          if (this.#crashes(process, this.calls_made + 0.5, `after ${verb}`)) return;
          if (context.strikes('silence')) return reject(new Error(`the answer of ${verb} was lost`));
          answer();
        });
      });
  }

  #crashes(process: Process, call: number, where: string): boolean {
    const context = this.#context;
    const {crashes} = context.options;
    const isCritical = where === 'before publish' || (where === 'after commit' && context.isDangerous);
    const isCrash = crashes
      ? crashes.has(call)
      : context.strikes('crash') || (isCritical && context.strikes('aim'));
    if (!isCrash) return false;
    context.note(() => `${process.name} crashes ${where}`);
    process.isDead = true;
    return true;
  }

  /** In some worlds the calls of ticks are so slow for some minutes that a plan gets too old before its last pool. */
  #slowness(actor: Actor): number {
    if (actor === undefined || !('topic' in actor) || this.#context.isCalm) return 0;
    const isTick = actor.topic === 'tick';
    if (this.#collisions) return this.#collisions.between(0, isTick ? MOST_SLOW_MS / 10 : MOST_SLOW_MS);
    if (!isTick || !this.#slow) return 0;
    const {draws, from, to} = this.#slow;
    const {now} = this.#context.clockwork;
    return now < from || now > to ? 0 : draws.between(0, 25_000);
  }

  latency(): number {
    const {chance, faults} = this.#context;
    if (this.#context.strikes('hang')) return this.#context.minutes(1, 12);
    const isSlow = faults.latency_ms > 0 && chance.happens(0.05);
    if (isSlow) this.#context.see('fault: latency_ms');
    return 2 + 20 * chance.next() + (isSlow ? faults.latency_ms * chance.next() : 0);
  }
}
