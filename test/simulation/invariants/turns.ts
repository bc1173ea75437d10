/** Checks that a tick serves first the pools for which an earlier tick was too slow. */
import {parseWorkerName} from '../../../shared/domain/names.ts';
import type {Document} from '../../../shared/ports.ts';
import {isNewIncarnation} from './nodes.ts';
import {Check} from './violations.ts';

export class Turns extends Check {
  /** Ticks under way. Ticks at the same time say nothing about an order. */
  #running = 0;
  /** Pools that the last tick left out, and whether this tick has given another pool a node. */
  #late: readonly string[] = [];
  #ahead: string | undefined;

  onTickStarted(): void {
    this.#running += 1;
    this.#ahead = undefined;
    const {late_pools} = this.context.store.peek('system/creates') ?? {};
    this.#late = this.#running === 1 ? ((late_pools as string[] | undefined) ?? []) : [];
    if (this.#late.length > 0) this.context.see('a tick was too slow for a pool');
  }

  onTickEnded(): void {
    this.#running -= 1;
    this.#late = [];
  }

  /** The pools that an event says were left out are those that the next tick serves first. */
  override onCommitted(paths: readonly string[]): void {
    const {store} = this.context;
    const texts = paths.filter(path => path.startsWith('events/')).map(path => store.peek(path)?.text);
    const left = texts.map(text => / with other pools than (.*)\. The next tick/.exec(String(text))?.[1]);
    const names = left.find(found => found !== undefined);
    const {late_pools = []} = store.peek('system/creates') ?? {};
    if (names !== undefined && names !== (late_pools as string[]).join(', '))
      this.breach(`a tick left out ${names}, and the next one serves ${JSON.stringify(late_pools)} first`);
  }

  onWorker(name: string, before: Document, after: Document): void {
    if (this.#late.length === 0 || !this.violations.isBy('tick') || !isNewIncarnation(before, after)) return;
    const pool = parseWorkerName(name)?.pool ?? '';
    if (!this.#late.includes(pool)) this.#ahead ??= name;
    else if (this.#ahead !== undefined)
      this.breach(`${name} was created after ${this.#ahead}, and the last tick was too slow for ${pool}`);
  }
}
