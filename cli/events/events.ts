import {setTimeout as sleep} from 'node:timers/promises';
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import type {Entry} from '../../client/events/entry.ts';
import {openFilter} from '../../client/events/filter.ts';
import {readerOf} from '../../client/events/read.ts';
import {type Line, OrderedEvents, styleOf, Timeline} from '../../client/events/timeline.ts';
import {isRunOver} from '../../client/logs/target.ts';
import {timeText} from '../../client/text/format.ts';
import {printJson, printText, say} from '../../client/text/output.ts';

type EventsOptions = CloudOptions & {follow?: boolean; tail: number; kind?: string};

const FOLLOW_MS = 1000;

/** Prints the timeline, the oldest event first. */
export async function events(run: string | undefined, options: EventsOptions): Promise<void> {
  await withCloud(options, cloud => printEvents(cloud, run, options));
}

async function printEvents(cloud: Cloud, run: string | undefined, options: EventsOptions): Promise<void> {
  const {store} = cloud;
  const filter = await openFilter(store, run, options.kind);
  const textOf = ({at, text}: Line) => `${timeText(at)} ${text}`;
  const write = eventPrinter(textOf, options.json ? printJson<'events'> : undefined);
  const end = () => write([], Number.POSITIVE_INFINITY);
  const reader = readerOf(store, filter);
  const found = await reader.newest(options.tail);
  write(found);
  if (found.length === 0) say(run === undefined ? 'no event yet' : `no event of run ${run} yet`);
  if (!options.follow) return end();
  for (;;) {
    // The state is read before the events: the events of an ended run are complete.
    const isOver = run !== undefined && (await isRunOver(store, run));
    write(await reader.next());
    if (isOver) return end();
    await sleep(FOLLOW_MS);
  }
}

/**
 * Printer of events in the order of their times: as objects, or without `printObject` as lines for a person. With an infinite `now_ms` it
 * also prints the events that wait for earlier ones, and the shards that wait for the next shards of their line.
 */
export function eventPrinter(textOf: (line: Line) => string, printObject?: (entry: Entry) => void) {
  const [objects, timeline] = [new OrderedEvents<Entry>(), new Timeline()];
  return (entries: readonly Entry[], now_ms = Date.now()): void => {
    if (printObject) for (const entry of objects.add(entries, now_ms)) printObject(entry);
    else
      printText(timeline.add(entries, now_ms).map(line => ({text: textOf(line), style: styleOf(line.text)})));
  };
}
