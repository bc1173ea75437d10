import {type Moment, storyLine, Timeline} from '../../client/events/timeline.ts';
import {numberText} from '../../client/text/format.ts';
import type {StyledLine} from '../../client/text/output.ts';
import type {RunState} from '../../client/views/run-state.ts';
import {LiveScreen} from '../screen/live.ts';
import {streamLines, tpuLines} from '../screen/run-screen.ts';

/** Intervals of the seconds of a step: on a terminal, and where the output only grows. */
const STEP_MS = 1000;
const PLAIN_STEP_MS = 10_000;

/** Screen of a demo: the story grows, and below it a terminal has a table of TPUs and streams. */
export class DemoScreen {
  readonly #screen: LiveScreen;
  readonly #isQuiet: boolean;
  readonly #timeline = new Timeline();
  #timer: NodeJS.Timeout | undefined;

  constructor(out: NodeJS.WriteStream, isQuiet: boolean) {
    this.#screen = new LiveScreen(out);
    this.#isQuiet = isQuiet;
  }

  /** Shows the state of the run, and its new events. `records`: lines of each stream. */
  show(state: RunState, events: readonly Moment[], records: readonly number[], now_ms = Date.now()): void {
    if (this.#isQuiet) return;
    if (this.#timer) this.end();
    const story = this.#timeline.add(events, now_ms).flatMap(line => storyLine(line) ?? []);
    // Bars show the shards of a terminal.
    const shown = this.#screen.isTerminal ? story.filter(({text}) => !/ {2}stored /.test(text)) : story;
    this.#screen.show(this.#table(state, records), shown);
  }

  #table(state: RunState, records: readonly number[]): StyledLine[] {
    const {width, height} = this.#screen;
    const room = {width, height: Math.max(1, Math.floor(height / 3))};
    return [{text: ''}, ...tpuLines(state, room), {text: ''}, ...streamLines(state, room, records)];
  }

  say = (text: string, style?: StyledLine['style']): void => {
    if (!this.#isQuiet) this.#screen.add([{text, style}]);
  };

  /** Begins a long step. Its seconds count until the next step or the first state of a run. */
  begin = (text: string): void => {
    if (this.#isQuiet) return;
    this.end();
    const began_ms = Date.now();
    const count = () => {
      const line = {text: `${text} … ${numberText(Math.round((Date.now() - began_ms) / 1000))} s`};
      if (this.#screen.isTerminal) this.#screen.show([line]);
      else this.#screen.add([line]);
    };
    this.#timer = setInterval(count, this.#screen.isTerminal ? STEP_MS : PLAIN_STEP_MS).unref();
    count();
  };

  /** Ends the current step or table. Its lines stay. */
  end(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#screen.end();
  }
}
