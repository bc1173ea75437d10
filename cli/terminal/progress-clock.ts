import {durationText} from './format.ts';
import {say} from './output.ts';

const CLOCK_MS = 5000;

/** Says every few seconds that the work goes on. `what`: the beginning of that sentence. */
export async function withClock<T>(what: string, work: () => Promise<T>): Promise<T> {
  const started_ms = Date.now();
  const clock = setInterval(
    () => say(`${what} for ${durationText((Date.now() - started_ms) / 1000)}`),
    CLOCK_MS,
  );
  try {
    return await work();
  } finally {
    clearInterval(clock);
  }
}
