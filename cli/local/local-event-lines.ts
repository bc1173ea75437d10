/** Lines about what happens on a local cloud: accepted streams, TPUs, failures, ended runs. */
import {setTimeout as sleep} from 'node:timers/promises';
import type {Store} from '../../shared/ports.ts';
import type {Entry} from '../events/entry.ts';
import {EventFilter} from '../events/filter.ts';
import {eventPrinter} from '../events/print.ts';
import {EventReader} from '../events/read.ts';
import {clockText} from '../screen/story.ts';
import {printJson} from '../terminal/output.ts';

const INTERVAL_MS = 500;

/** Prints new events until `stopped`: with `json` one object a line. Shards of a stream share a line. */
export async function printNews(
  store: Store,
  {json, stopped}: {json: boolean; stopped: AbortSignal},
): Promise<void> {
  const began = new Date().toISOString();
  const reader = new EventReader(store, await EventFilter.open(store, undefined, undefined));
  const printObject = ({at, kind, run, text}: Entry) => printJson<'local up'>({at, kind, run, text});
  const write = eventPrinter(clockText, json ? printObject : undefined);
  while (!stopped.aborted) {
    write((await reader.next()).filter(({at}) => at >= began));
    await sleep(INTERVAL_MS, undefined, {signal: stopped}).catch(() => {});
  }
  write([], Number.POSITIVE_INFINITY);
}
