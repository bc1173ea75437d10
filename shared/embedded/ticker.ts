import type {Ticker} from '../ports.ts';

export type EmbeddedTickerOptions = {
  interval_ms: number;
  /** One look at everything. What it throws goes to `trouble`, and the next tick comes as usual. */
  tick: () => Promise<void>;
  /** Whether the ticker is on, kept where a crash does not reach it. */
  saved: {get(): boolean; set(on: boolean): void};
  trouble?: (error: unknown) => void;
  /** Calls back after a time, and answers how to call that off. Tests step it. */
  after?: (delay_ms: number, callback: () => void) => () => void;
};

const afterTimeout: NonNullable<EmbeddedTickerOptions['after']> = (delay_ms, callback) => {
  const timer = setTimeout(callback, delay_ms);
  return () => clearTimeout(timer);
};

/**
 * Ticks once when it is switched on and then every interval. A tick that takes longer than the interval delays the next:
 * two never run at once.
 */
export class EmbeddedTicker implements Ticker {
  readonly #options: Required<EmbeddedTickerOptions>;
  #cancel: (() => void) | undefined;
  #ticking: Promise<void> | undefined;
  #started = false;
  #beats = 0;

  constructor(options: EmbeddedTickerOptions) {
    this.#options = {after: afterTimeout, trouble: () => {}, ...options};
  }

  /** Takes up where the last process left off. Until then `on` and `off` are only remembered. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    if (this.#options.saved.get()) this.#beat();
  }

  /** Ends the ticking of this process, without switching the ticker off, and waits for a tick that is under way. */
  async stop(): Promise<void> {
    this.#started = false;
    this.#cancel?.();
    this.#cancel = undefined;
    await this.#ticking;
  }

  async on(): Promise<void> {
    if (this.#options.saved.get()) return;
    this.#options.saved.set(true);
    if (this.#started) this.#beat();
  }

  async off(): Promise<void> {
    if (this.#options.saved.get()) this.#options.saved.set(false);
    this.#cancel?.();
    this.#cancel = undefined;
  }

  isOn(): boolean {
    return this.#options.saved.get();
  }

  /** One tick now, on or off; a tick that is under way is followed by one more, because it may have looked already. */
  async tickNow(): Promise<void> {
    while (this.#ticking) await this.#ticking;
    await this.#tick();
  }

  #tick(): Promise<void> {
    this.#ticking = this.#options
      .tick()
      .catch(this.#options.trouble)
      .finally(() => {
        this.#ticking = undefined;
      });
    return this.#ticking;
  }

  #beat(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    const beat = ++this.#beats;
    // Switched off, or off and on again, while it ticked: then this chain of beats is over.
    const isOver = () => !this.#started || beat !== this.#beats || !this.#options.saved.get();
    void this.tickNow().then(() => {
      if (!isOver()) this.#cancel = this.#options.after(this.#options.interval_ms, () => this.#beat());
    });
  }
}
