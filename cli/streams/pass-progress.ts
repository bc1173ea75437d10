import {bytesText, counted, durationText} from '../terminal/format.ts';

const SHOWN_EVERY_MS = 2000;

/** Counts of one pass over the sources, and a line of progress every two seconds. */
export class PassProgress {
  readonly #say: (line: string) => void;
  readonly #timer: NodeJS.Timeout;
  #what = '';
  #begun_ms = performance.now();
  #bytes = 0;
  rows = 0;

  constructor(say: (line: string) => void) {
    this.#say = say;
    this.#timer = setInterval(() => this.#show(), SHOWN_EVERY_MS);
  }

  begin(what: string): void {
    this.#what = what;
    this.#begun_ms = performance.now();
    this.#bytes = 0;
    this.rows = 0;
  }

  moved(bytes: number): void {
    this.#bytes += bytes;
  }

  end(): void {
    clearInterval(this.#timer);
  }

  #show(): void {
    const seconds = (performance.now() - this.#begun_ms) / 1000;
    const rows = this.rows > 0 ? `, ${counted(this.rows, 'row')}` : '';
    const rate = bytesText(Math.round(this.#bytes / seconds));
    this.#say(`${this.#what}: ${bytesText(this.#bytes)}${rows}, ${rate}/s, ${durationText(seconds)}`);
  }
}
