/** Lets several calls run into each other: every use of a port is a place where another call may come first. */
import type {Store, Transaction} from '../shared/ports.ts';

export class Interleaver {
  #waiting: (() => void)[] = [];
  #random: (() => number) | undefined;

  /** A place where others may come first; outside of `run`, it is none. */
  async pause(): Promise<void> {
    if (!this.#random) return;
    await new Promise<void>(resolve => this.#waiting.push(resolve));
  }

  /** Runs the jobs at once. At every pause `random` chooses who goes on. What the jobs throw is thrown when all have ended. */
  async run(random: () => number, jobs: (() => Promise<unknown>)[]): Promise<void> {
    this.#random = random;
    let running = jobs.length;
    const settled = Promise.allSettled(jobs.map(job => job().finally(() => running--)));
    while (running > 0) {
      await new Promise(resolve => setImmediate(resolve));
      const [next] = this.#waiting.splice(Math.floor(random() * this.#waiting.length), 1);
      next?.();
    }
    this.#random = undefined;
    for (const outcome of await settled) if (outcome.status === 'rejected') throw outcome.reason;
  }
}

/** Ports that pause before every call, and inside a transaction before every read and before the commit. */
export function pausing(interleaver: Interleaver) {
  function ports<T extends object>(port: T, verbs: (keyof T & string)[]): T {
    const pausing = Object.create(port) as Record<string, unknown>;
    for (const verb of verbs)
      pausing[verb] = async (...args: unknown[]) => {
        await interleaver.pause();
        const call = (port as Record<string, (...args: unknown[]) => unknown>)[verb];
        if (verb !== 'transaction') return call?.apply(port, args);
        const [work] = args as Parameters<Store['transaction']>;
        return (port as unknown as Store).transaction(async tx => {
          const result = await work(pausingReads(interleaver, tx));
          await interleaver.pause();
          return result;
        });
      };
    return pausing as T;
  }
  return {ports};
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
