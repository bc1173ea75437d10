/** What comes between a call of a port and its answer: other calls, or nothing at all. */
import {AsyncLocalStorage} from 'node:async_hooks';
import type {Store, Transaction} from '../../shared/ports.ts';

export class Interleaver {
  readonly #job = new AsyncLocalStorage<number>();
  #waiting: {job: number; resume: () => void}[] = [];
  #running = false;

  /** A place where others may come first; outside of `run`, it is none. */
  async pause(): Promise<void> {
    const job = this.#job.getStore();
    if (!this.#running || job === undefined) return;
    await new Promise<void>(resume => this.#waiting.push({job, resume}));
  }

  /**
   * Runs the jobs at once. `random` decides who goes on after a pause: in some runs anybody at every pause; in most, the
   * first in a random ranking, where whoever is first at one of a few random moments becomes the last, because many a race
   * needs all of one job between two steps of another. What the jobs throw is thrown when all have ended.
   */
  async run(random: () => number, jobs: (() => Promise<unknown>)[]): Promise<void> {
    const rank = jobs.map(random);
    const anybody = random() < 0.3;
    const turns = new Set([random(), random()].map(turn => Math.floor(turn * 24)));
    let left = jobs.length;
    this.#running = true;
    const settled = Promise.allSettled(
      jobs.map((job, index) => this.#job.run(index, job).finally(() => left--)),
    );
    for (let step = 0; left > 0; step++) {
      await new Promise(resolve => setImmediate(resolve));
      if (this.#waiting.length === 0) continue;
      if (turns.has(step)) rank[this.#first(rank)] = -step;
      const job = anybody ? -1 : this.#first(rank);
      const index = this.#waiting.findIndex(waiting => waiting.job === job);
      const [next] = this.#waiting.splice(index < 0 ? Math.floor(random() * this.#waiting.length) : index, 1);
      next?.resume();
    }
    this.#running = false;
    for (const outcome of await settled) if (outcome.status === 'rejected') throw outcome.reason;
  }

  /** The job that waits and ranks first. */
  #first(rank: number[]): number {
    const rankOf = ({job}: {job: number}) => rank[job] ?? 0;
    return this.#waiting.reduce((a, b) => (rankOf(b) > rankOf(a) ? b : a)).job;
  }
}

/** A service that did not answer: what was asked of it may have been done all the same. */
export class NoAnswer extends Error {
  override name = 'NoAnswer';
}

/** How often a call of a port gets no answer. */
export class Weather {
  #chance = 0;
  #random: () => number = () => 1;

  turnBad(chance: number, random: () => number): void {
    this.#chance = chance;
    this.#random = random;
  }

  clear(): void {
    this.#chance = 0;
  }

  /** Throws `NoAnswer` before the call, or after it was done. */
  async around<T>(what: string, call: () => Promise<T>): Promise<T> {
    const luck = this.#random();
    if (luck < this.#chance / 2) throw new NoAnswer(`${what} was not reached`);
    const answer = await call();
    if (luck < this.#chance) throw new NoAnswer(`the answer of ${what} was lost`);
    return answer;
  }
}

/** A port that pauses before every call, and in a transaction before every read and the commit; in bad weather, calls fail. */
export function exposed<T extends object>(
  port: T,
  verbs: (keyof T & string)[],
  interleaver: Interleaver,
  weather: Weather,
): T {
  const outside = Object.create(port) as Record<string, unknown>;
  for (const verb of verbs)
    outside[verb] = async (...args: unknown[]) => {
      await interleaver.pause();
      if (verb === 'transaction') {
        const work = args[0] as Parameters<Store['transaction']>[0];
        args[0] = async (tx: Transaction) => {
          const result = await work(pausingReads(interleaver, tx));
          await interleaver.pause();
          return result;
        };
      }
      const call = (port as Record<string, (...args: unknown[]) => Promise<unknown>>)[verb];
      return weather.around(verb, async () => call?.apply(port, args));
    };
  return outside as T;
}

function pausingReads(interleaver: Interleaver, tx: Transaction): Transaction {
  return {
    get: async path => {
      await interleaver.pause();
      return tx.get(path);
    },
    create: (path, data) => tx.create(path, data),
    set: (path, data) => tx.set(path, data),
    delete: path => tx.delete(path),
  };
}

/** Chance that a seed repeats: numbers from 0 to 1. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
