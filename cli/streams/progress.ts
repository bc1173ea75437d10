/** Counts of a pass over sources and of an upload, with a line of progress every two seconds. */
import {bytesText, counted, durationText} from '../../client/text/format.ts';

const SHOWN_EVERY_MS = 2000;

abstract class Progress {
  readonly #timer: NodeJS.Timeout;
  #begun_ms = performance.now();
  protected bytes = 0;

  constructor(say: (line: string) => void) {
    this.#timer = setInterval(() => say(this.line()), SHOWN_EVERY_MS);
  }

  protected abstract line(): string;

  protected restart(): void {
    this.#begun_ms = performance.now();
    this.bytes = 0;
  }

  protected get seconds(): number {
    return (performance.now() - this.#begun_ms) / 1000;
  }

  moved(bytes: number): void {
    this.bytes += bytes;
  }

  end(): void {
    clearInterval(this.#timer);
  }
}

/** One pass over the sources after the other. */
export class PassProgress extends Progress {
  #what = '';
  rows = 0;

  begin(what: string): void {
    this.#what = what;
    this.rows = 0;
    this.restart();
  }

  protected override line(): string {
    const rows = this.rows > 0 ? `, ${counted(this.rows, 'row')}` : '';
    const rate = bytesText(Math.round(this.bytes / this.seconds));
    return `${this.#what}: ${bytesText(this.bytes)}${rows}, ${rate}/s, ${durationText(this.seconds)}`;
  }
}

export class TransferProgress extends Progress {
  readonly #streams: number;
  readonly #total: number;
  #counts = {uploaded: 0, already_there: 0, uploaded_bytes: 0};

  constructor(say: (line: string) => void, streams: number, total: number) {
    super(say);
    this.#streams = streams;
    this.#total = total;
  }

  get done(): number {
    return this.#counts.uploaded + this.#counts.already_there;
  }

  ended({isNew, bytes}: {isNew: boolean; bytes: number}): void {
    this.#counts[isNew ? 'uploaded' : 'already_there'] += 1;
    if (isNew) this.#counts.uploaded_bytes += bytes;
  }

  report() {
    return {...this.#counts, seconds: this.seconds};
  }

  protected override line(): string {
    const rate = this.bytes / this.seconds;
    const left = rate > 0 ? `, ${durationText((this.#total - this.bytes) / rate)} left` : '';
    return `${this.done} of ${counted(this.#streams, 'stream')}, ${bytesText(this.bytes)} of ${bytesText(this.#total)}, ${bytesText(Math.round(rate))}/s${left}`;
  }
}
