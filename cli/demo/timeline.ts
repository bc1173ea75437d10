import type {TimelineEntry} from '../run-view.ts';

export type Line = {
  at: string;
  text: string;
  /** True for a loss and for the recovery from a loss. */
  is_highlight: boolean;
};

const SHARD = /^Shard (\d+) of (\S+) stored/;
/** Events of a loss and a recovery: a lost TPU, its next incarnation, and a stream that continues from its checkpoint. */
const HIGHLIGHTS = [
  / is lost: /,
  / is wanted: creating it, incarnation (?!1$)/,
  / works on \S+ from sample (?!0$)/,
];
/** Time that a stored shard waits for the next shards of its line. */
const FOLD_MS = 2000;

/** Turns events into lines in the order of the events. Consecutive shards of a stream share a line. */
export class Timeline {
  readonly #shown = new Set<string>();
  readonly #shards = new Map<string, {numbers: number[]; at: string}>();
  #waits_since_ms = 0;

  /** Returns the lines that are due. Each event may occur in any number of calls. */
  add(events: readonly TimelineEntry[], now_ms: number): Line[] {
    const lines: Line[] = [];
    for (const {id, at, text} of events) {
      if (this.#shown.has(id)) continue;
      this.#shown.add(id);
      const [, number, stream] = SHARD.exec(text) ?? [];
      if (number !== undefined && stream !== undefined) this.#hold(stream, Number(number), at, now_ms);
      else lines.push(...this.#flush(), {at, text, is_highlight: HIGHLIGHTS.some(event => event.test(text))});
    }
    if (this.#shards.size > 0 && now_ms - this.#waits_since_ms >= FOLD_MS) lines.push(...this.#flush());
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
      text: `Shard${numbers.length > 1 ? 's' : ''} ${ranges(numbers)} of ${stream} stored`,
      is_highlight: false,
    }));
    this.#shards.clear();
    return lines;
  }
}

/** Numbers as ranges: `1-3, 5` for 1, 2, 3 and 5. */
function ranges(numbers: readonly number[]): string {
  const spans: [number, number][] = [];
  for (const number of numbers.toSorted((a, b) => a - b)) {
    const last = spans.at(-1);
    if (last?.[1] === number - 1) last[1] = number;
    else spans.push([number, number]);
  }
  return spans.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(', ');
}
