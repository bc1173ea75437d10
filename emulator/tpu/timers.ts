/** One timer for each thing that changes by itself at a time. */
export class Alarms {
  readonly #timers = new Map<string, NodeJS.Timeout>();

  /** Calls `wake` at `due_at` (milliseconds since 1970), and no earlier time that was set for the key; null: never. */
  set(key: string, due_at: number | null, wake: () => void): void {
    clearTimeout(this.#timers.get(key));
    this.#timers.delete(key);
    if (due_at === null) return;
    const ring = () => {
      this.#timers.delete(key);
      wake();
    };
    this.#timers.set(key, setTimeout(ring, Math.max(0, due_at - Date.now())));
  }

  clear(): void {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
  }
}
