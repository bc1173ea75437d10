import {setTimeout as sleep} from 'node:timers/promises';
import {type Cloud, withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {isRunOver} from '../logs/target.ts';
import {styleOf} from '../screen/story.ts';
import {Timeline} from '../screen/timeline.ts';
import {printJson, say} from '../terminal/output.ts';
import {printLines} from '../terminal/styled-lines.ts';
import type {Entry} from './entry.ts';
import {EventFilter} from './filter.ts';
import {OrderedEvents} from './order.ts';
import {EventReader} from './read.ts';

type Options = CloudOptions & {follow?: boolean; tail: number; kind?: string};

const FOLLOW_MS = 1000;

/** Prints the timeline, the oldest event first. */
export async function events(run: string | undefined, options: Options): Promise<void> {
  await withCloud(options, cloud => printEvents(cloud, run, options));
}

async function printEvents(cloud: Cloud, run: string | undefined, options: Options): Promise<void> {
  const {store} = cloud;
  const filter = await EventFilter.open(store, run, options.kind);
  const screen = new Screen(options);
  const reader = new EventReader(store, filter);
  const found = await reader.newest(options.tail);
  screen.write(found);
  if (found.length === 0) say(run === undefined ? 'no event yet' : `no event of run ${run} yet`);
  if (!options.follow) return screen.end();
  for (;;) {
    // The state is read before the events: the events of an ended run are complete.
    const isOver = run !== undefined && (await isRunOver(store, run));
    screen.write(await reader.next());
    if (isOver) return screen.end();
    await sleep(FOLLOW_MS);
  }
}

/** Events on standard output: one JSON object a line, or lines for a person. */
class Screen {
  readonly #isJson: boolean;
  readonly #objects = new OrderedEvents<Entry>();
  readonly #timeline = new Timeline();

  constructor({json}: Options) {
    this.#isJson = json === true;
  }

  write(entries: readonly Entry[], now_ms = Date.now()): void {
    if (this.#isJson) {
      for (const entry of this.#objects.add(entries, now_ms)) printJson<'events'>(entry);
      return;
    }
    const lines = this.#timeline.add(entries, now_ms);
    printLines(
      lines.map(({at, text}) => ({
        text: `${at.slice(0, 19).replace('T', ' ')} ${text}`,
        style: styleOf(text),
      })),
    );
  }

  /** Writes the events that wait for earlier ones, and the shards that wait for the next shards of their line. */
  end(): void {
    this.write([], Number.POSITIVE_INFINITY);
  }
}
