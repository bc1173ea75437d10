/** `gleaner run watch`: TPUs, streams, cost and events of a run until it has ended. */
import {setTimeout as sleep} from 'node:timers/promises';
import {type Cloud, withCloud} from '../../../client/cloud/cloud.ts';
import {unknownRun} from '../../../client/cloud/fleet.ts';
import type {CloudOptions} from '../../../client/connection/connect.ts';
import {openFilter} from '../../../client/events/filter.ts';
import {readerOf} from '../../../client/events/read.ts';
import {clockText, type Moment, styleOf, Timeline} from '../../../client/events/timeline.ts';
import {tpuStatus} from '../../../client/explanations/tpu-status.ts';
import {rowOf} from '../../../client/json/fields.ts';
import type {Answers} from '../../../client/json/index.ts';
import {watched} from '../../../client/json/runs.ts';
import {CliError} from '../../../client/text/errors.ts';
import {counted} from '../../../client/text/format.ts';
import {printJson, type StyledLine, say} from '../../../client/text/output.ts';
import {type RunState, readRun, streamCount} from '../../../client/views/run-state.ts';
import {parseWork} from '../../../shared/domain/names.ts';
import {LiveScreen} from '../../screen/live.ts';
import {abortedAtStop} from '../../terminal/stop-signal.ts';
import {MOST_EVENTS, plainLine, screenLines} from './screen-lines.ts';

type WatchOptions = CloudOptions & {interval: number};

/** Failed reads in a row that end the watch. */
const MOST_FAILURES = 10;

/** Exit code 0: the run is completed. Exit code 1: it ended in another way. Exit code 130: Ctrl-C ended the watch, and not the run. */
export async function watch(run: string, options: WatchOptions): Promise<void> {
  const stopped = abortedAtStop();
  await withCloud(options, async cloud => {
    const view = openView(cloud, run, options);
    process.stdout.on('resize', () => view.redraw());
    let [wasStopped, isFirst] = [false, true];
    for (;;) {
      const state = await view.refresh();
      if (state && isOver(state)) {
        process.exitCode = state.run.status === 'completed' ? 0 : 1;
        return view.end();
      }
      const stoppedNow = await cloud.connection.stopped();
      if (stoppedNow && isFirst) throw new CliError(`run ${run} is not over, and ${stoppedNow}`);
      // A cloud that stops while it is watched may start again.
      if (stoppedNow && !wasStopped) say(stoppedNow);
      [wasStopped, isFirst] = [stoppedNow !== undefined, false];
      const isStopped = await sleep(options.interval * 1000, undefined, {signal: stopped}).then(
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

/** Returns a function that reads the new events of a run as lines. `own`: events of this process. */
async function openStory({store}: Cloud, run: string) {
  const reader = readerOf(store, await openFilter(store, run));
  const timeline = new Timeline();
  let read = () => reader.newest(MOST_EVENTS * 4);
  return async (now_ms: number, own = (): Moment[] => []) => {
    const entries = await read();
    read = () => reader.next();
    const lines = timeline.add([...entries, ...own()], now_ms);
    return lines.map((line): StyledLine => ({text: clockText(line), style: styleOf(line.text)}));
  };
}

function openView(cloud: Cloud, run: string, {json, interval}: WatchOptions) {
  const screen = new LiveScreen(process.stdout);
  let story: Awaited<ReturnType<typeof openStory>> | undefined;
  let events: StyledLine[] = [];
  let last: {state: RunState; now: number} | undefined;
  let [lastFacts, failures] = ['', 0];
  const draw = (state: RunState, news: readonly StyledLine[], now: number) => {
    last = {state, now};
    events = [...events, ...news].slice(-MOST_EVENTS);
    const {width, height} = screen;
    const header = headerOf(state, cloud.connection.bucket, interval);
    screen.show(screenLines(state, events, {width, height, header, now}));
  };
  /** The state as an event, where it differs from the last one. */
  const changes = (state: RunState, now: number): Moment[] => {
    // The cost grows at every look.
    const facts = plainLine({...state, run: {...state.run, cost_usd: 0}});
    if (facts === lastFacts) return [];
    lastFacts = facts;
    const at = new Date(now).toISOString();
    return [{id: `state ${at}`, at, text: plainLine(state)}];
  };
  const read = async (): Promise<RunState> => {
    const state = await readRun(cloud.store, run);
    if (!state.run) {
      const [why] = state.invalid;
      throw why === undefined ? await unknownRun(cloud.store, run) : new CliError(why);
    }
    const now = Date.now();
    if (json) {
      printJson<'run watch'>(answerOf(state, now));
      return state;
    }
    story ??= await openStory(cloud, run);
    const news = await story(now, () => (screen.isTerminal ? [] : changes(state, now)));
    if (screen.isTerminal) draw(state, news, now);
    else screen.add(news);
    return state;
  };
  return {
    /** Reads and shows the run. A failed read is repeated at the next look, a few times. */
    async refresh(): Promise<RunState | undefined> {
      try {
        const state = await read();
        failures = 0;
        return state;
      } catch (error) {
        if (error instanceof CliError || ++failures >= MOST_FAILURES) throw error;
        say(`Failed to read run ${run}: ${(error as Error).message}; trying again`);
        return undefined;
      }
    },
    /** Draws the last state again, for a terminal of another size. */
    redraw(): void {
      if (last) draw(last.state, [], last.now);
    },
    async end(): Promise<void> {
      if (json) return;
      const rest = (await story?.(Number.POSITIVE_INFINITY)) ?? [];
      if (!screen.isTerminal) screen.add(rest);
      else if (last) draw(last.state, rest, last.now);
      screen.end();
    },
  };
}

function headerOf({tpus}: RunState, bucket: string, interval: number): string {
  const zones = new Set(tpus.map(({zone}) => zone)).size;
  return `bucket ${bucket}  ${counted(tpus.length, 'TPU')} in ${counted(zones, 'zone')}  every ${interval} s`;
}

/** Answer of `--json`, one object for each look. */
function answerOf({run, streams, tpus, work, invalid}: RunState, now: number): Answers['run watch'] {
  return rowOf(watched, {
    ...run,
    at: new Date(now).toISOString(),
    ...{samples: run.total_samples_processed, rejected: run.rejected_samples, tokens: run.total_tokens},
    ...{shards: run.total_shards, bytes: run.total_bytes},
    streams: {
      ...{total: streamCount({run, streams}), pending: run.streams_pending},
      ...{in_progress: run.streams_in_progress, completed: run.streams_completed, failed: run.streams_failed},
    },
    not_shown: invalid,
    tpus: tpus.map(worker => ({
      ...{tpu: worker.name, status: tpuStatus(worker), work: worker.work, samples: worker.samples_done},
      shards: work.get(worker.name)?.total_shards ?? null,
    })),
  });
}
