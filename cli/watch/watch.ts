/** `gleaner run watch`: TPUs, streams, cost and events of a run until it has ended. */
import {setTimeout as sleep} from 'node:timers/promises';
import {parseWork} from '../../shared/domain/names.ts';
import type {Store} from '../../shared/ports.ts';
import type {Where} from '../connect.ts';
import {type Cloud, withCloud} from '../control.ts';
import {CliError} from '../errors.ts';
import {EventFilter} from '../events/filter.ts';
import {EventReader} from '../events/read.ts';
import {counted, timeText} from '../format.ts';
import {print} from '../output.ts';
import {similarRuns} from '../runs/change.ts';
import {LiveScreen} from '../screen/live.ts';
import {type RunState, readRun, streamCount} from '../screen/read-run.ts';
import {costLine, headLine, streamCounts, streamLines, summaryLine, tpuLines} from '../screen/run-screen.ts';
import {styleOf} from '../screen/story.ts';
import {Timeline} from '../screen/timeline.ts';
import {tpuStatus} from '../screen/tpu-status.ts';
import {stopSignal} from '../stop-signal.ts';
import type {StyledLine} from '../styled-lines.ts';
import {plainLine} from './plain-line.ts';

export type WatchOptions = Where & {interval: number; json?: boolean};

/** Events that the screen shows. */
const MOST_EVENTS = 6;

/** Exit code 0: the run is completed. Exit code 1: it ended in another way. Exit code 130: Ctrl-C ended the watch, and not the run. */
export async function watch(run: string, options: WatchOptions): Promise<void> {
  const stopped = new AbortController();
  void stopSignal().then(() => stopped.abort());
  await withCloud(options, async cloud => {
    const view = new RunView(cloud, run, options);
    for (;;) {
      const state = await view.refresh();
      if (isOver(state)) {
        process.exitCode = state.run.status === 'completed' ? 0 : 1;
        return view.end();
      }
      const isStopped = await sleep(options.interval * 1000, undefined, {signal: stopped.signal}).then(
        () => false,
        () => true,
      );
      if (isStopped) {
        process.exitCode = 130;
        return view.end();
      }
    }
  });
}

/** A run has ended when no TPU works for it any more. */
function isOver({run, tpus}: RunState): boolean {
  if (run.status === 'active' || run.status === 'paused') return false;
  return !tpus.some(({charged_to, work}) => charged_to === run.run || parseWork(work)?.run === run.run);
}

/** Events of a run as lines. */
class Story {
  readonly #timeline = new Timeline();
  readonly #reader: EventReader;
  readonly #filter: EventFilter;
  #isFirst = true;

  private constructor(store: Store, filter: EventFilter) {
    this.#filter = filter;
    this.#reader = new EventReader(store, filter);
  }

  static async open({store}: Cloud, run: string): Promise<Story> {
    return new Story(store, await EventFilter.open(store, run, undefined));
  }

  /** `tpus`: names of the TPUs that the screen shows. */
  async next(now_ms: number, tpus: Iterable<string> = []): Promise<StyledLine[]> {
    this.#filter.add(tpus);
    const entries = await (this.#isFirst ? this.#reader.newest(MOST_EVENTS * 4) : this.#reader.next());
    this.#isFirst = false;
    const lines = this.#timeline.add(entries, now_ms);
    return lines.map(({at, text}) => ({text: `${at.slice(11, 19)}  ${text}`, style: styleOf(text)}));
  }
}

class RunView {
  readonly #cloud: Cloud;
  readonly #run: string;
  readonly #options: WatchOptions;
  readonly #screen = new LiveScreen(process.stdout);
  #story: Story | undefined;
  #events: StyledLine[] = [];
  #said = '';

  constructor(cloud: Cloud, run: string, options: WatchOptions) {
    this.#cloud = cloud;
    this.#run = run;
    this.#options = options;
  }

  async refresh(): Promise<RunState> {
    const state = await readRun(this.#cloud.store, this.#run);
    if (!state.run) {
      const why =
        state.invalid[0] ?? `there is no run "${this.#run}"${await similarRuns(this.#cloud, this.#run)}`;
      throw new CliError(why);
    }
    const now = Date.now();
    if (this.#options.json) {
      print(true, answerOf(state, now), []);
      return state;
    }
    this.#story ??= await Story.open(this.#cloud, this.#run);
    const news = await this.#story.next(
      now,
      state.tpus.map(({name}) => name),
    );
    if (this.#screen.isTerminal) this.#draw(state, news, now);
    else this.#print(state, news, now);
    return state;
  }

  async end(): Promise<void> {
    if (this.#options.json) return;
    const last = (await this.#story?.next(Number.POSITIVE_INFINITY)) ?? [];
    if (!this.#screen.isTerminal) this.#screen.add(last);
    this.#screen.end();
  }

  #draw(state: RunState, news: readonly StyledLine[], now: number): void {
    this.#events = [...this.#events, ...news].slice(-MOST_EVENTS);
    this.#screen.show(
      screenLines(state, this.#events, {
        ...{width: this.#screen.width, height: this.#screen.height},
        header: this.#header(state),
        now,
      }),
    );
  }

  #print(state: RunState, news: readonly StyledLine[], now: number): void {
    const line = plainLine(state);
    const isNew = line !== this.#said;
    this.#said = line;
    this.#screen.add([
      ...news,
      ...(isNew ? [{text: `${timeText(new Date(now).toISOString()).slice(11)}  ${line}`}] : []),
    ]);
  }

  #header({tpus}: RunState): string {
    const zones = new Set(tpus.map(({zone}) => zone)).size;
    const {bucket} = this.#cloud.connection;
    return `bucket ${bucket}  ${counted(tpus.length, 'TPU')} in ${counted(zones, 'zone')}  every ${this.#options.interval} s`;
  }
}

type Frame = {width: number; height: number; header: string; now: number};

/** The whole screen. TPUs, streams and events share the height. */
export function screenLines(
  state: RunState,
  events: readonly StyledLine[],
  {width, height, header, now}: Frame,
): StyledLine[] {
  const fixed = 11;
  const room = Math.max(2, height - fixed - Math.min(events.length, MOST_EVENTS));
  const of_tpus = Math.max(1, Math.min(state.tpus.length, Math.ceil(room / 2)));
  const of_streams = Math.max(0, room - of_tpus);
  return [
    headLine(state),
    {text: header, style: 'dim'},
    {text: ''},
    ...tpuLines(state, {width, height: of_tpus}),
    summaryLine(state),
    {text: ''},
    streamCounts(state),
    ...streamLines(state, {width, height: of_streams}),
    costLine(state),
    ...state.invalid.slice(0, 1).map(text => ({text: `not shown: ${text}`, style: 'yellow' as const})),
    ...events,
    {
      text: `Last update: ${timeText(new Date(now).toISOString())}  Ctrl-C ends the watch, and not the run`,
      style: 'dim',
    },
  ];
}

/** Answer of `--json`, one object for each look. */
function answerOf(state: RunState, now: number) {
  const {run, tpus, work} = state;
  const {status, reason, total_samples_processed, rejected_samples, total_shards, total_bytes, total_tokens} =
    run;
  const {streams_pending, streams_in_progress, streams_completed, streams_failed} = run;
  return {
    at: new Date(now).toISOString(),
    ...{run: run.run, status, reason},
    ...{samples: total_samples_processed, rejected: rejected_samples, tokens: total_tokens},
    ...{shards: total_shards, bytes: total_bytes, cost_usd: run.cost_usd, budget_usd: run.budget_usd},
    streams: {
      ...{total: streamCount(state), pending: streams_pending, in_progress: streams_in_progress},
      ...{completed: streams_completed, failed: streams_failed},
    },
    tpus: tpus.map(worker => ({
      tpu: worker.name,
      status: tpuStatus(worker),
      work: worker.work,
      samples: worker.samples_done,
      shards: work.get(worker.name)?.total_shards ?? null,
    })),
  };
}
