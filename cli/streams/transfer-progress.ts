import {bytesText, counted, durationText} from '../terminal/format.ts';

const SHOWN_EVERY_MS = 2000;

/** Counts of an upload, and a line of progress every two seconds. */
export class TransferProgress {
  readonly #say: (line: string) => void;
  readonly #streams: number;
  readonly #bytes: number;
  readonly #begun_ms = performance.now();
  readonly #timer: NodeJS.Timeout;
  #moved = 0;
  #uploaded = 0;
  #uploaded_bytes = 0;
  #already_there = 0;

  constructor(say: (line: string) => void, streams: number, bytes: number) {
    this.#say = say;
    this.#streams = streams;
    this.#bytes = bytes;
    this.#timer = setInterval(() => this.#show(), SHOWN_EVERY_MS);
  }

  get done(): number {
    return this.#uploaded + this.#already_there;
  }

  moved(bytes: number): void {
    this.#moved += bytes;
  }

  ended({isNew, bytes}: {isNew: boolean; bytes: number}): void {
    if (isNew) this.#uploaded += 1;
    else this.#already_there += 1;
    if (isNew) this.#uploaded_bytes += bytes;
  }

  report() {
    return {
      uploaded: this.#uploaded,
      already_there: this.#already_there,
      uploaded_bytes: this.#uploaded_bytes,
      seconds: this.#seconds(),
    };
  }

  end(): void {
    clearInterval(this.#timer);
  }

  #seconds(): number {
    return (performance.now() - this.#begun_ms) / 1000;
  }

  #show(): void {
    const rate = this.#moved / this.#seconds();
    const left = rate > 0 ? `, ${durationText((this.#bytes - this.#moved) / rate)} left` : '';
    this.#say(
      `${this.done} of ${counted(this.#streams, 'stream')}, ${bytesText(this.#moved)} of ${bytesText(this.#bytes)}, ${bytesText(Math.round(rate))}/s${left}`,
    );
  }
}
