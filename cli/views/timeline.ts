/** The timeline with filters. */
import type {Cloud} from '../cloud/cloud.ts';
import type {Entry} from '../events/entry.ts';
import {EventFilter} from '../events/filter.ts';
import {EventReader} from '../events/read.ts';

export type TimelineFilter = {run?: string | undefined; kind?: string | undefined; text?: string | undefined};

const MOST = 200;

/** The newest events that the filter means, the newest first. `runs`: every run, for the choice of one. */
export async function readTimeline(
  {store}: Cloud,
  {run, kind, text}: TimelineFilter,
): Promise<{entries: Entry[]; runs: string[]}> {
  const reader = new EventReader(store, await EventFilter.open(store, run, kind));
  const wanted = text?.toLowerCase();
  const found = await reader.newest(MOST);
  const entries = wanted ? found.filter(entry => entry.text.toLowerCase().includes(wanted)) : found;
  const runs = (await store.query('runs')).map(({id}) => id);
  return {entries: entries.reverse(), runs};
}
