/** Lines about what happens on a local cloud: accepted streams, TPUs, failures, ended runs. */
import {setTimeout as sleep} from 'node:timers/promises';
import type {Store} from '../../shared/ports.ts';
import type {Entry} from '../events/entry.ts';
import {EventFilter} from '../events/filter.ts';
import {OrderedEvents} from '../events/order.ts';
import {EventReader} from '../events/read.ts';
import {styleOf} from '../screen/story.ts';
import {Timeline} from '../screen/timeline.ts';
import {printJson} from '../terminal/output.ts';
import {printLines} from '../terminal/styled-lines.ts';

const INTERVAL_MS = 500;

/** Prints new events until `stopped`: with `json` one object a line. Shards of a stream share a line. */
export async function printNews(
  store: Store,
  {json, stopped}: {json: boolean; stopped: AbortSignal},
): Promise<void> {
  const began = new Date().toISOString();
  const reader = new EventReader(store, await EventFilter.open(store, undefined, undefined));
  const [objects, timeline] = [new OrderedEvents<Entry>(), new Timeline()];
  const write = (news: Entry[], now_ms: number) => {
    if (json)
      for (const {at, kind, run, text} of objects.add(news, now_ms))
        printJson<'local up'>({at, kind, run, text});
    else
      printLines(
        timeline.add(news, now_ms).map(({at, text}) => ({
          text: `${at.slice(11, 19)}  ${text}`,
          style: styleOf(text),
        })),
      );
  };
  while (!stopped.aborted) {
    const news = (await reader.next()).filter(({at}) => at >= began);
    write(news, Date.now());
    await sleep(INTERVAL_MS, undefined, {signal: stopped}).catch(() => {});
  }
  write([], Number.POSITIVE_INFINITY);
}
