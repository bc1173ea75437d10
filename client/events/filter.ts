/** Events that a person asks for. No query has two filters, because that needs a composite index. */
import {paths} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {unknownRun} from '../cloud/unknown-run.ts';
import {tpusOfRun} from '../logs/run-tpus.ts';
import type {Entry} from './entry.ts';

export class EventFilter {
  readonly #run: string | undefined;
  readonly #kind: string | undefined;
  readonly #tpus: Set<string>;
  /** Creation of the run. Earlier events of its TPUs are about other runs. */
  readonly since: string | undefined;

  private constructor(run: string | undefined, kind: string | undefined, tpus: Set<string>, since?: string) {
    this.#run = run;
    this.#kind = kind;
    this.#tpus = tpus;
    this.since = since;
  }

  /** Events of the run and of the TPUs that work or worked on the run; without a run, all events. */
  static async open(store: Store, run: string | undefined, kind: string | undefined): Promise<EventFilter> {
    if (run === undefined) return new EventFilter(run, kind, new Set());
    const found = await store.get(paths.run(run));
    if (!found) throw await unknownRun(store, run);
    const tpus = (await tpusOfRun(store, run)).map(({tpu}) => tpu);
    const {created_at} = found;
    return new EventFilter(run, kind, new Set(tpus), typeof created_at === 'string' ? created_at : undefined);
  }

  /** Events of a run and of TPUs that are known: no document is read. */
  static ofRun(
    {run, created_at}: Pick<Run, 'run' | 'created_at'>,
    tpus: Iterable<string>,
    kind?: string,
  ): EventFilter {
    return new EventFilter(run, kind, new Set(tpus), created_at);
  }

  /** Events of these TPUs are meant from now on. */
  add(tpus: Iterable<string>): void {
    for (const tpu of tpus) this.#tpus.add(tpu);
  }

  /** Learns the TPUs of the streams of the run, whose other events are meant too, also those before. */
  learn(entries: readonly Entry[]): void {
    for (const {run, worker} of entries)
      if (run !== null && run === this.#run && worker !== null) this.#tpus.add(worker);
  }

  /** True for an event that is meant. */
  isMeant({run, kind, worker, at}: Entry): boolean {
    const isOwn = run !== null && run === this.#run;
    if (this.#kind !== undefined && kind !== this.#kind) return false;
    if (this.#run === undefined || isOwn) return true;
    return run === null && worker !== null && this.#tpus.has(worker) && at >= (this.since ?? '');
  }
}
