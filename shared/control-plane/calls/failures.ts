import {NotUnderstood, Rejected} from '../../contracts/errors.ts';
import {forEachConcurrently} from './concurrency.ts';
import type {Log} from './log.ts';

/**
 * Isolates the parts of a tick: the failure of a part is logged at once and does not stop other parts. `rethrow` at the end makes the caller
 * run again. An invalid document only raises an alert, because running again would not help.
 */
export class Failures {
  readonly #log: Log;
  readonly #thrown: unknown[] = [];

  constructor({log}: {log: Log}) {
    this.#log = log;
  }

  /** Runs `work`; `part` names it, such as "list the nodes". Returns undefined if `work` failed. */
  async isolate<T>(part: string, work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work();
    } catch (error) {
      const {message} = error as Error;
      const alone = error instanceof NotUnderstood ? ({signal: 'document-left-alone'} as const) : {};
      this.#log('ERROR', `Failed to ${part}: ${message}`, alone);
      if (!(error instanceof Rejected)) this.#thrown.push(error);
      return undefined;
    }
  }

  /** Isolates the part of each item, `width` items at once. */
  each<T>(
    items: readonly T[],
    partOf: (item: T) => [part: string, work: () => Promise<unknown>],
    width?: number,
  ) {
    return forEachConcurrently(items, item => this.isolate(...partOf(item)), width);
  }

  rethrow(): void {
    if (this.#thrown.length > 0) throw this.#thrown[0];
  }
}
