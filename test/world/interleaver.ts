/** The order of calls that several jobs make at once, and calls without an answer. */
import {AsyncLocalStorage} from 'node:async_hooks';
import type {Store, Transaction} from '../../shared/ports/ports.ts';
import type {Call} from './call.ts';

export class Interleaver {
  readonly #job = new AsyncLocalStorage<number>();
  #waiting: {job: number; resume: () => void}[] = [];
  #running = false;

  /** Lets other jobs go first. Outside of `run` it does nothing. */
  async pause(): Promise<void> {
    const job = this.#job.getStore();
    if (!this.#running || job === undefined) return;
    await new Promise<void>(resume => this.#waiting.push({job, resume}));
  }

  /**
   * Runs the jobs at once. `random` decides which job goes on after each pause. In some runs it is any job. In most runs it is the first
   * job of a random ranking, and the first becomes the last at two random moments: many a race needs all of one job between two steps of
   * another. Errors of jobs are thrown when all jobs have ended.
   */
  async run(random: () => number, jobs: (() => Promise<unknown>)[]): Promise<void> {
    const rank = jobs.map(random);
    const isAny = random() < 0.3;
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
      const job = isAny ? -1 : this.#first(rank);
      const index = this.#waiting.findIndex(waiting => waiting.job === job);
      const [next] = this.#waiting.splice(index < 0 ? Math.floor(random() * this.#waiting.length) : index, 1);
      next?.resume();
    }
    this.#running = false;
    for (const outcome of await settled) if (outcome.status === 'rejected') throw outcome.reason;
  }

  /** The highest waiting job of the ranking. */
  #first(rank: number[]): number {
    const rankOf = ({job}: {job: number}) => rank[job] ?? 0;
    return this.#waiting.reduce((a, b) => (rankOf(b) > rankOf(a) ? b : a)).job;
  }
}

/** A service that did not answer: the call may have had its effect all the same. */
export class NoAnswer extends Error {
  override name = 'NoAnswer';
}

/** Calls of ports that get no answer. */
export class Outage {
  #chance = 0;
  #random: () => number = () => 1;

  begin(chance: number, random: () => number): void {
    this.#chance = chance;
    this.#random = random;
  }

  end(): void {
    this.#chance = 0;
  }

  /** Throws `NoAnswer` before the effect, or after it. */
  async around<T>(what: string, effect: () => T): Promise<T> {
    const luck = this.#random();
    if (luck < this.#chance / 2) throw new NoAnswer(`${what} was not reached`);
    const answer = effect();
    await answer;
    if (luck < this.#chance) throw new NoAnswer(`the answer of ${what} was lost`);
    return answer;
  }
}

/** A store whose transactions also pause before every read and before the commit. */
export function storeThrough(call: Call, interleaver: Interleaver, store: Store): Store {
  return {
    get: async (...of) => call('get', () => store.get(...of)),
    query: async (...of) => call('query', () => store.query(...of)),
    count: async (...of) => call('count', () => store.count(...of)),
    sum: async (...of) => call('sum', () => store.sum(...of)),
    transaction: async work =>
      call('transaction', () =>
        store.transaction(async tx => {
          const result = await work(pausingReads(interleaver, tx));
          await interleaver.pause();
          return result;
        }),
      ),
    close: () => store.close(),
  };
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
