/** The timeline with filters. */
import type {Cloud} from '../cloud/cloud.ts';
import type {Entry} from '../events/entry.ts';
import {openFilter} from '../events/filter.ts';
import {readerOf} from '../events/read.ts';

export type TimelineFilter = {run?: string | undefined; kind?: string | undefined; text?: string | undefined};

const MOST = 200;
export const MOST_READ = 1200;

/** The newest events that the filter means, the newest first. `runs`: every run, for the choice of one. */
export async function readTimeline(
  {store}: Cloud,
  {run, kind, text}: TimelineFilter,
): Promise<{entries: Entry[]; runs: string[]}> {
  const reader = readerOf(store, await openFilter(store, run, kind));
  const wanted = text?.toLowerCase();
  const found = await reader.newest(MOST, MOST_READ);
  const entries = wanted ? found.filter(entry => entry.text.toLowerCase().includes(wanted)) : found;
  const runs = (await store.query('runs')).map(({id}) => id);
  return {entries: entries.reverse(), runs};
}
