/** Holds all but the last lines back until `flush`. Later lines pass at once. Memory holds `most` lines. */
export class Tail<T> {
  readonly #most: number;
  readonly #write: (line: T) => void;
  #held: T[] | undefined = [];

  constructor(most: number, write: (line: T) => void) {
    this.#most = most;
    this.#write = write;
  }

  add(line: T): void {
    if (!this.#held || this.#most === Number.POSITIVE_INFINITY) this.#write(line);
    else {
      this.#held.push(line);
      // Cuts now and then, because each cut copies the lines.
      if (this.#held.length >= 2 * this.#most + 1000) this.#held = this.#lines();
    }
  }

  flush(): void {
    for (const line of this.#lines()) this.#write(line);
    this.#held = undefined;
  }

  #lines(): T[] {
    const held = this.#held ?? [];
    return this.#most === 0 ? [] : held.slice(-this.#most);
  }
}
