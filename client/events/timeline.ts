import {ranges} from '../explanations/result-lines.ts';
import {inOrder, OrderedEvents} from './order.ts';

export type Moment = {id: string; at: string; kind?: string; text: string};
export type Line = {at: string; text: string};

const SHARD = /^Shard (\d+) of (\S+) stored/;
/** Time that a stored shard waits for the next shards of its line. */
const FOLD_MS = 1000;

/** Turns events into lines in the order of their times. Consecutive shards of a stream share a line. */
export class Timeline {
  readonly #events = new OrderedEvents<Moment>();
  readonly #shards = new Map<string, {numbers: number[]; at: string}>();
  #waits_since_ms = 0;

  /** Returns the lines that are due. Each event may occur in any number of calls. */
  add(events: readonly Moment[], now_ms: number): Line[] {
    const lines: Line[] = [];
    for (const {at, text} of this.#events.add(events, now_ms)) {
      const [, number, stream] = SHARD.exec(text) ?? [];
      if (number !== undefined && stream !== undefined) this.#hold(stream, Number(number), at, now_ms);
      else lines.push(...this.#flush(), {at, text});
    }
    if (now_ms >= this.#waits_since_ms + FOLD_MS) lines.push(...this.#flush());
    return lines;
  }

  #hold(stream: string, number: number, at: string, now_ms: number): void {
    if (this.#shards.size === 0) this.#waits_since_ms = now_ms;
    const {numbers} = this.#shards.get(stream) ?? {numbers: []};
    this.#shards.set(stream, {numbers: [...numbers, number], at});
  }

  #flush(): Line[] {
    const lines = [...this.#shards].map(([stream, {numbers, at}]) => ({
      at,
      text: `Shard${numbers.length > 1 ? 's' : ''} ${ranges(numbers.toSorted((a, b) => a - b))} of ${stream} stored`,
    }));
    this.#shards.clear();
    return inOrder(lines);
  }
}
