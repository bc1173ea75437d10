import type {Entry} from '../../client/events/entry.ts';
import {OrderedEvents} from '../../client/events/order.ts';
import {styleOf} from '../../client/events/story.ts';
import {type Line, Timeline} from '../../client/events/timeline.ts';
import {printText} from '../../client/text/output.ts';

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
