/** Work that takes long: one line that changes on a terminal, and a line a minute elsewhere. */
import {cut, durationText} from '../../client/text/format.ts';
import {say, sayForNow} from '../../client/text/output.ts';

const TERMINAL_MS = 1000;
const OTHERWISE_MS = 60_000;

/** What a clock says before its duration, which the work may change. */
export type Clock = {what: string};

/** Says that the work goes on. `what`: the beginning of that sentence. */
export async function withClock<T>(what: string, work: (clock: Clock) => Promise<T>): Promise<T> {
  const started_ms = Date.now();
  const clock = {what};
  const {isTTY, columns = 80} = process.stderr;
  const show = () => {
    const line = `${clock.what} for ${durationText((Date.now() - started_ms) / 1000)}`;
    if (isTTY) sayForNow(cut(line, columns));
    else say(line);
  };
  const timer = setInterval(show, isTTY ? TERMINAL_MS : OTHERWISE_MS);
  try {
    return await work(clock);
  } finally {
    clearInterval(timer);
    sayForNow('');
  }
}
