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
