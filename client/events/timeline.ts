/** Events in the order of their times, as lines, and in the words of a story: created, preempted, recreated, resumed, completed. */

import {ranges} from '../explanations/result-lines.ts';
import type {Style} from '../text/format.ts';
import type {StyledLine} from '../text/output.ts';

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

type Verb = {verb: string; style?: Style | Style[]};

/** The first pattern that matches counts. */
const VERBS: [pattern: RegExp, verb: Verb][] = [
  [/^preempted /, {verb: 'PREEMPTED', style: ['bold', 'red']}],
  [/ is lost: /, {verb: 'lost', style: 'red'}],
  [/ is wanted: creating it, incarnation 1$/, {verb: 'created'}],
  [/ is wanted: creating it, incarnation /, {verb: 'recreated', style: 'green'}],
  [/ works on \S+ from sample 0$/, {verb: 'started'}],
  [/ works on \S+ from sample /, {verb: 'resumed', style: ['bold', 'green']}],
  [/^Shards? .* stored$/, {verb: 'stored', style: 'dim'}],
  [/^Stream \S+ is complete/, {verb: 'completed', style: 'green'}],
  [/^Run \S+ is completed/, {verb: 'completed', style: ['bold', 'green']}],
  [/ is gone$/, {verb: 'deleted', style: 'dim'}],
  [
    / failed|cannot be created|is not created|is paused: |was rejected|is ignored: /,
    {verb: 'failed', style: 'red'},
  ],
  [/is READY again/, {verb: 'back', style: 'green'}],
];

export function verbOf(text: string): Verb | undefined {
  return VERBS.find(([pattern]) => pattern.test(text))?.[1];
}

/** Red for a loss, green for a recovery and for the end of a stream or a run. */
export function styleOf(text: string): Style | Style[] | undefined {
  return verbOf(text)?.style;
}

const VERB_WIDTH = Math.max(...VERBS.map(([, {verb}]) => verb.length));

/** `16:39:20  Stream 007 is complete`. */
export function clockText({at, text}: Line): string {
  return `${at.slice(11, 19)}  ${text}`;
}

/** `16:39:20  PREEMPTED  tpu-us-central1-a-1: its VM is gone`; undefined for an event that is no part of the story. */
export function storyLine({at, text}: Line): StyledLine | undefined {
  const found = verbOf(text);
  if (!found) return undefined;
  const words = text.replace(/^preempted /, '');
  return {text: clockText({at, text: `${found.verb.padEnd(VERB_WIDTH)}  ${words}`}), style: found.style};
}

/** Events in the order of their times. */

export type Timed = {id: string; at: string; kind?: string};

/** Time that an event waits for earlier events, which other functions are about to write. */
const SETTLE_MS = 1000;

/** The order of time: a shard comes before the other events of its millisecond, such as the end of its stream. */
export function inOrder<T extends Omit<Timed, 'id'>>(events: T[]): T[] {
  const rank = ({kind}: {kind?: string}) => (kind === 'shard' ? 0 : 1);
  return events.sort((a, b) => a.at.localeCompare(b.at) || rank(a) - rank(b));
}

/** Gives each event once, and no event before an earlier one that arrives up to a second later. */
export class OrderedEvents<T extends Timed> {
  readonly #seen = new Set<string>();
  /** Each waits from its time on, and from its arrival on where the clock of its function is ahead. */
  readonly #since_ms = new Map<T, number>();

  /** Returns the events that are due; with an infinite `now_ms` all that wait. Each event may occur in any number of calls. */
  add(events: readonly T[], now_ms: number): T[] {
    for (const event of events) {
      if (this.#seen.has(event.id)) continue;
      this.#seen.add(event.id);
      this.#since_ms.set(event, Math.min(Date.parse(event.at), now_ms));
    }
    const waiting = inOrder([...this.#since_ms.keys()]);
    const last = waiting.findLastIndex(event => now_ms - (this.#since_ms.get(event) ?? 0) >= SETTLE_MS);
    const due = waiting.slice(0, last + 1);
    for (const event of due) this.#since_ms.delete(event);
    return due;
  }
}
