/** The timeline with filters. */
import {runRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import type {Store} from '../../shared/ports/ports.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {unknownRun} from '../cloud/fleet.ts';
import type {Entry} from '../events/entry.ts';
import {type EventFilter, filterOf, openFilter} from '../events/filter.ts';
import {readerOf} from '../events/read.ts';
import {isFor} from '../logs/run-tpus.ts';

export type TimelineFilter = {run?: string | undefined; kind?: string | undefined; text?: string | undefined};

const MOST = 200;
export const MOST_READ = 1200;

/** The newest events that the filter means, the newest first. `runs`: every run, for the choice of one. */
export async function readTimeline(
  {store}: Cloud,
  {run, kind, text}: TimelineFilter,
): Promise<{entries: Entry[]; runs: string[]}> {
  const reader = readerOf(store, await filterFor(store, run, kind));
  const wanted = text?.toLowerCase();
  const found = await reader.newest(MOST, MOST_READ);
  const entries = wanted ? found.filter(entry => entry.text.toLowerCase().includes(wanted)) : found;
  const runs = (await store.query('runs')).map(({id}) => id);
  return {entries: entries.reverse(), runs};
}

async function filterFor(
  store: Store,
  run: string | undefined,
  kind: string | undefined,
): Promise<EventFilter> {
  if (run === undefined) return openFilter(store, run, kind);
  const found = await runRecords.get(store, run);
  if (!found) throw await unknownRun(store, run);
  const workers = workerRecords.parseAll(await store.query('workers'), () => {});
  const tpus = workers.filter(worker => isFor(run, worker)).map(({name}) => name);
  return filterOf({run, kind, since: found.created_at}, tpus);
}
