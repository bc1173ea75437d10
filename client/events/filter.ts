/** Events that a person asks for. No query has two filters, because that needs a composite index. */
import {paths} from '../../shared/domain/names.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {unknownRun} from '../cloud/fleet.ts';
import {tpusOfRun} from '../logs/run-tpus.ts';
import type {Entry} from './entry.ts';

/** `since`: creation of the run. Earlier events of its TPUs are about other runs. */
type Meant = {run?: string | undefined; kind?: string | undefined; since?: string | undefined};
export type EventFilter = ReturnType<typeof filterOf>;

/** Events of the run and of the TPUs that work or worked on the run; without a run, all events. */
export async function openFilter(store: Store, run?: string, kind?: string): Promise<EventFilter> {
  if (run === undefined) return filterOf({kind}, []);
  const found = await store.get(paths.run(run));
  if (!found) throw await unknownRun(store, run);
  const tpus = (await tpusOfRun(store, run)).map(({tpu}) => tpu);
  const {created_at} = found;
  return filterOf({run, kind, since: typeof created_at === 'string' ? created_at : undefined}, tpus);
}

/** Events of a run and of TPUs that are known: no document is read. */
export function filterOf({run: of, kind: only, since}: Meant, known: Iterable<string>) {
  const tpus = new Set(known);
  const isOwn = (run: string | null) => run !== null && run === of;
  return {
    since,
    /** Events of these TPUs are meant from now on. */
    add(more: Iterable<string>): void {
      for (const tpu of more) tpus.add(tpu);
    },
    /** Adds the TPUs of the run's streams, whose other events are meant too, also those before. */
    learn(entries: readonly Entry[]): void {
      for (const {run, worker} of entries) if (isOwn(run) && worker !== null) tpus.add(worker);
    },
    /** True for an event that is meant. */
    isMeant({run, kind, worker, at}: Entry): boolean {
      if (only !== undefined && kind !== only) return false;
      if (of === undefined || isOwn(run)) return true;
      return run === null && worker !== null && tpus.has(worker) && at >= (since ?? '');
    },
  };
}
