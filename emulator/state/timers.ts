/** Timers by key, at most one for each key. */
export class Timers {
  readonly #timers = new Map<string, NodeJS.Timeout>();

  /** Calls `onDue` at `due_at` (milliseconds since 1970), or never for null. Replaces the earlier timer of the key. */
  set(key: string, due_at: number | null, onDue: () => void): void {
    this.clear(key);
    if (due_at === null) return;
    const fire = () => {
      this.#timers.delete(key);
      onDue();
    };
    this.#timers.set(key, setTimeout(fire, Math.max(0, due_at - Date.now())));
  }

  clear(key: string): void {
    clearTimeout(this.#timers.get(key));
    this.#timers.delete(key);
  }

  clearAll(): void {
    for (const key of [...this.#timers.keys()]) this.clear(key);
  }
}
