/** Checks that the counts of a run without a mark are those of its streams: no tick counts such a run. */
import {isOpen, type Run} from '../../../shared/domain/records/run.ts';
import type {Stream} from '../../../shared/domain/records/stream.ts';
import {Check} from './violations.ts';

export class Marks extends Check {
  override onCommitted(paths: readonly string[]): void {
    const runs = paths.flatMap(path => /^runs\/([^/]+)(?:\/streams\/[^/]+)?$/.exec(path)?.[1] ?? []);
    for (const name of new Set(runs)) this.#checkCounts(name);
  }

  #checkCounts(name: string): void {
    const {store, everAlone} = this.context;
    const run = store.peek(`runs/${name}`) as Run | undefined;
    if (!run || !isOpen(run) || run.changed_at !== null) return;
    const streams = store.collection(`runs/${name}/streams`);
    if (streams.some(({path}) => everAlone.has(path))) return;
    this.context.see('a run is counted: no stream has changed since');
    for (const status of ['pending', 'in_progress', 'completed', 'failed'] as const) {
      const found = streams.filter(({data}) => (data as Stream).status === status).length;
      if (run[`streams_${status}`] !== found)
        this.breach(
          `run ${name} has no mark, and counts ${run[`streams_${status}`]} of ${found} ${status} streams`,
        );
    }
  }
}
