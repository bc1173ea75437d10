import type {TimelineEntry} from '../run-view.ts';

export type Line = {
  at: string;
  text: string /** Part of the story that the demo tells: a loss, or the recovery from it. */;
  stands_out: boolean;
};

const SHARD = /^Shard (\d+) of (\S+) stored/;
/** A TPU that is lost, one that is created again, and a stream that goes on from the middle. */
const STORY = [
  / is lost: /,
  / is wanted: creating it, incarnation (?!1$)/,
  / works on \S+ from sample (?!0$)/,
];
/** Shards wait this long for the next ones. */
const FOLD_MS = 2000;

/** Turns events into lines, in their order; shards that are stored one after the other share a line. */
export class Timeline {
  readonly #shown = new Set<string>();
  readonly #shards = new Map<string, {numbers: number[]; at: string}>();
  #waits_since_ms = 0;

  /** The lines that are due. `events`: each may come any number of times. */
  add(events: readonly TimelineEntry[], now_ms: number): Line[] {
    const lines: Line[] = [];
    for (const {id, at, text} of events) {
      if (this.#shown.has(id)) continue;
      this.#shown.add(id);
      const [, number, stream] = SHARD.exec(text) ?? [];
      if (number !== undefined && stream !== undefined) this.#wait(stream, Number(number), at, now_ms);
      else lines.push(...this.#folded(), {at, text, stands_out: STORY.some(part => part.test(text))});
    }
    if (this.#shards.size > 0 && now_ms - this.#waits_since_ms >= FOLD_MS) lines.push(...this.#folded());
    return lines;
  }

  #wait(stream: string, number: number, at: string, now_ms: number): void {
    if (this.#shards.size === 0) this.#waits_since_ms = now_ms;
    const {numbers} = this.#shards.get(stream) ?? {numbers: []};
    this.#shards.set(stream, {numbers: [...numbers, number], at});
  }

  #folded(): Line[] {
    const lines = [...this.#shards].map(([stream, {numbers, at}]) => ({
      at,
      text: `Shard${numbers.length > 1 ? 's' : ''} ${ranges(numbers)} of ${stream} stored`,
      stands_out: false,
    }));
    this.#shards.clear();
    return lines;
  }
}

/** `1-3, 5` of 1, 2, 3 and 5. */
function ranges(numbers: readonly number[]): string {
  const spans: [number, number][] = [];
  for (const number of numbers.toSorted((a, b) => a - b)) {
    const last = spans.at(-1);
    if (last?.[1] === number - 1) last[1] = number;
    else spans.push([number, number]);
  }
  return spans.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(', ');
}
