import {styleText} from 'node:util';
import {printable} from '../../shared/contracts/printable.ts';
import {type RunView, streamLine, workerLine} from '../run-view.ts';
import {type Line, Timeline} from './timeline.ts';

/** Intervals of the bars and of the seconds of a step where the output only grows. */
const PLAIN_BARS_MS = 4000;
const PLAIN_STEP_MS = 10_000;
const STEP_MS = 1000;

/** Shows a run in progress. On a terminal the last lines change in place; elsewhere the output only grows. */
export function liveView(out: NodeJS.WriteStream, quiet: boolean) {
  const isTerminal = out.isTTY && !quiet;
  const timeline = new Timeline();
  let below: string[] = [];
  let height = 0;
  let barsAt = 0;
  let timer: NodeJS.Timeout | undefined;

  function write(lines: readonly string[]): void {
    if (quiet) return;
    const erase = isTerminal && height > 0 ? `\u001b[${height}A\u001b[J` : '';
    const all = isTerminal ? [...lines, ...below] : lines;
    if (erase || all.length > 0) out.write(erase + all.map(line => `${line}\n`).join(''));
    height = isTerminal ? below.length : 0;
  }

  function dated({at, text, is_highlight}: Line): string {
    const line = `${at.slice(11, 19)}  ${printable(text)}`;
    return is_highlight ? styleText(['bold', 'yellow'], line, {stream: out}) : line;
  }

  function show(view: RunView, records: readonly number[]): void {
    if (timer) end();
    const lines = timeline.add(view.events, Date.now()).map(dated);
    const bars = [
      ...view.streams.map(stream => streamLine(stream, view.workers, records[stream.worker_id])),
      view.workers.map(workerLine).join('   ') || 'no TPU',
    ].map(line => printable(line).slice(0, Math.max(40, (out.columns || 120) - 1)));
    const isNew = bars.join() !== below.join();
    below = bars;
    if (isTerminal) {
      if (isNew || lines.length > 0) write(lines);
    } else if (lines.length > 0) {
      const isDue = Date.now() - barsAt > PLAIN_BARS_MS;
      if (isDue) barsAt = Date.now();
      write(isDue ? [...lines, ...bars] : lines);
    }
  }

  function say(line: string): void {
    write([printable(line)]);
  }

  /** Shows an event of this moment as a highlight. */
  function highlight(text: string): void {
    write([dated({at: new Date().toISOString(), text, is_highlight: true})]);
  }

  /** Begins a long step. Its seconds count until the next step or the first view of a run. */
  function begin(text: string): void {
    end();
    const began_ms = Date.now();
    const count = () => {
      const line = `${printable(text)} … ${Math.round((Date.now() - began_ms) / 1000)} s`;
      below = isTerminal ? [line] : [];
      write(isTerminal ? [] : [line]);
    };
    timer = setInterval(count, isTerminal ? STEP_MS : PLAIN_STEP_MS).unref();
    count();
  }

  /** Ends the current step. Its lines stay. */
  function end(): void {
    clearInterval(timer);
    timer = undefined;
    below = [];
    height = 0;
  }

  return {show, say, highlight, begin, end};
}
