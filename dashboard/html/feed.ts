import type {Html} from './html.ts';

/** Polls of pages: one for each page that browsers show, whatever their number. */

/** A part of a page that changes as a whole. */
export type Section = {id: string; html: string};

/** A page: its sections from a view of the cloud. `key`: its address. */
export type LivePage = {key: string; read: () => Promise<Section[]>};

/** `at_ms`: time of the sections. `problem`: why they are older than they should be. */
export type Shown = {sections: Section[]; at_ms: number; problem: string | null};

type Listener = (shown: Shown) => void;
type Watched = {
  page: LivePage;
  shown: Shown | undefined;
  polling: Promise<void> | undefined;
  timer: NodeJS.Timeout | undefined;
  /** Duration of the last poll. */
  took_ms: number;
  listeners: Set<Listener>;
};

export type FeedOptions = {
  now: () => number;
  interval_ms: number;
  /** Milliseconds until the next poll may start. */
  waitMs: () => number;
};

/** A database without an answer for so long is away. The late answer counts when it comes. */
const LATE_MS = 8000;
/** A page that is slow to read rests for so many times as long. */
const REST = 4;
/** Pages without a browser that are kept, because a browser may come back to them. */
const MOST_KEPT = 50;

export class Feed {
  readonly #options: FeedOptions;
  readonly #watched = new Map<string, Watched>();

  constructor(options: FeedOptions) {
    this.#options = options;
  }

  /** The page as it is now, or as it was seen last. Throws where it was never seen. */
  async show(page: LivePage): Promise<Shown> {
    const watched = this.#watch(page);
    const age_ms = this.#options.now() - (watched.shown?.at_ms ?? Number.NEGATIVE_INFINITY);
    if (age_ms >= this.#options.interval_ms) await this.#poll(watched);
    if (watched.shown && watched.shown.sections.length > 0) return watched.shown;
    throw new PageError(watched.shown?.problem ?? 'the page is not read yet');
  }

  /** Calls `listener` after each poll until the returned function is called. */
  subscribe(page: LivePage, listener: Listener): () => void {
    const watched = this.#watch(page);
    watched.listeners.add(listener);
    if (watched.shown) listener(watched.shown);
    this.#schedule(watched);
    return () => {
      watched.listeners.delete(listener);
      if (watched.listeners.size > 0) return;
      clearTimeout(watched.timer);
      watched.timer = undefined;
    };
  }

  close(): void {
    for (const {timer} of this.#watched.values()) clearTimeout(timer);
    this.#watched.clear();
  }

  #watch(page: LivePage): Watched {
    const known = this.#watched.get(page.key);
    const watched = known ?? {
      ...{page, shown: undefined, polling: undefined, timer: undefined, took_ms: 0},
      listeners: new Set<Listener>(),
    };
    this.#watched.delete(page.key);
    this.#watched.set(page.key, watched);
    for (const [key, {listeners}] of this.#watched)
      if (this.#watched.size > MOST_KEPT && listeners.size === 0) this.#watched.delete(key);
    return watched;
  }

  #schedule(watched: Watched): void {
    if (watched.timer || watched.listeners.size === 0) return;
    const {now, interval_ms, waitMs} = this.#options;
    const least_ms = now() + Math.max(interval_ms, watched.took_ms * REST, waitMs());
    // The polls of all pages start together, so one reads for all.
    const wait_ms = least_ms - (least_ms % interval_ms) - now();
    watched.timer = setTimeout(() => {
      watched.timer = undefined;
      this.#poll(watched)
        .catch(() => {})
        .finally(() => this.#schedule(watched));
    }, wait_ms);
    watched.timer.unref();
  }

  /** Reads the page. A call while it is read waits for the same answer, and no longer than for a late one. */
  async #poll(watched: Watched): Promise<void> {
    watched.polling ??= this.#read(watched).finally(() => {
      watched.polling = undefined;
    });
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<'late'>(resolve => {
      timer = setTimeout(() => resolve('late'), LATE_MS);
    });
    const outcome = await Promise.race([watched.polling, late]);
    clearTimeout(timer);
    if (outcome === 'late') this.#fail(watched, `no answer for ${LATE_MS / 1000} s`);
    for (const listener of watched.listeners) if (watched.shown) listener(watched.shown);
  }

  async #read(watched: Watched): Promise<void> {
    const begun_ms = this.#options.now();
    try {
      const sections = await watched.page.read();
      watched.took_ms = this.#options.now() - begun_ms;
      watched.shown = {sections, at_ms: this.#options.now(), problem: null};
    } catch (error) {
      if (error instanceof PageError && !watched.shown) throw error;
      this.#fail(watched, (error as Error).message);
    }
  }

  /** The last known state stays, with its age. */
  #fail(watched: Watched, problem: string): void {
    const last = watched.shown ?? {sections: [], at_ms: 0};
    watched.shown = {...last, problem};
  }
}

/** An error for the person who asked for the page: `status` is that of the answer. */
export class PageError extends Error {
  readonly status: 404 | 503;

  constructor(message: string, status: 404 | 503 = 503) {
    super(message);
    this.status = status;
  }
}

/** A part of a page, which changes as a whole. */
export function section(id: string, body: Html): Section {
  return {id, html: String(body)};
}
