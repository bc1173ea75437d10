import {printable} from '../output.ts';
import {type RunView, streamLine, workerLine} from '../view.ts';

/** Where lines are only added, the bars come again this often. */
const PLAIN_BARS_MS = 2000;

/** Shows a run as it happens: on a terminal the bars stay below and the timeline scrolls above, elsewhere only lines are added. */
export function liveView(out: NodeJS.WriteStream, quiet: boolean) {
  const fixed = out.isTTY && !quiet;
  const shown = new Set<string>();
  let height = 0;
  let lastBars = '';
  let barsAt = 0;
  const erase = () => (fixed && height > 0 ? `\u001b[${height}A\u001b[J` : '');

  function show(view: RunView, records: readonly number[]): void {
    if (quiet) return;
    const news = view.events.filter(event => !shown.has(event.id));
    for (const event of news) shown.add(event.id);
    const lines = news.map(event => `${event.at.slice(11, 19)}  ${printable(event.text)}`);
    const bars = [
      ...view.streams.map(stream => streamLine(stream, view.workers, records[stream.worker_id])),
      view.workers.map(workerLine).join('   ') || 'no TPU',
    ].map(line => printable(line).slice(0, Math.max(40, (out.columns || 120) - 1)));
    const text = bars.join('\n');
    if (lines.length === 0 && text === lastBars) return;
    if (fixed) {
      out.write(`${erase()}${[...lines, ...bars].join('\n')}\n`);
      height = bars.length;
    } else if (lines.length > 0) {
      out.write(`${lines.join('\n')}\n`);
      if (Date.now() - barsAt > PLAIN_BARS_MS) {
        out.write(`${text}\n`);
        barsAt = Date.now();
      }
    }
    lastBars = text;
  }

  function say(line: string): void {
    if (quiet) return;
    out.write(`${erase()}${printable(line)}\n`);
    height = 0;
  }

  return {show, say};
}
