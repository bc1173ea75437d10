/** Events that a person asks for. No query has two filters, because that needs a composite index. */
import {paths} from '../../shared/domain/names.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {unknownRun} from '../cloud/fleet.ts';
import type {Entry} from './entry.ts';

/** `since`: creation of the run. Earlier events are not read. */
export type EventFilter = {since?: string | undefined; isMeant: (event: Entry) => boolean};

/** Events of the run, with those of TPUs while it pays for them; without a run, all events. */
export async function openFilter(store: Store, run?: string, kind?: string): Promise<EventFilter> {
  const isMeant = (event: Entry) =>
    (kind === undefined || event.kind === kind) && (run === undefined || event.run === run);
  if (run === undefined) return {isMeant};
  const found = await store.get(paths.run(run));
  if (!found) throw await unknownRun(store, run);
  return {since: typeof found.created_at === 'string' ? found.created_at : undefined, isMeant};
}
