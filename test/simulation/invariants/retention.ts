/** Checks that only the streams of runs that ended long ago lose their documents, that all of them do, and that the run keeps its totals. */
import {paths} from '../../../shared/domain/names.ts';
import type {Document} from '../../../shared/ports/ports.ts';
import {Check} from './violations.ts';

/** The default of `GLEANER_STREAMS_DAYS`, repeated here. */
const KEPT_MS = 90 * 86_400_000;

const TOTALS = [
  ...['streams_pending', 'streams_in_progress', 'streams_completed', 'streams_failed', 'total_shards'],
  ...['total_samples_processed', 'rejected_samples', 'total_tokens', 'total_bytes', 'status'],
];

export function isEnded({status}: Document): boolean {
  return ['completed', 'failed', 'stopped'].includes(String(status));
}

export class Retention extends Check {
  /** True if the documents of the streams of the run may be deleted now. */
  mayBeDeleted(run: string): boolean {
    const {aged, store} = this.context;
    const found = store.peek(paths.run(run)) ?? {};
    return aged.has(run) && isEnded(found) && typeof found.expired_at === 'string';
  }

  /** A run whose documents expire has ended long ago, and nothing changes it but its next work, and the stop of a failed run. */
  onRun(run: string, before: Document, after: Document): void {
    const {isSettled, touched} = {isSettled: this.context.isSettled(), touched: this.context.touched};
    const goesOn = typeof before.expired_at === 'string' && after.status === 'active';
    if (goesOn && isSettled && !touched.has(run))
      this.breach(`run ${run} was expired, and is active without a message or a new stream`);
    if (typeof after.expired_at !== 'string') return;
    this.context.see('a run is expired');
    if (!this.context.aged.has(run))
      this.breach(`run ${run} has ended, and its documents expire on the same day`);
    const isStop = after.status === 'stopped' && touched.has(run);
    const changed = TOTALS.find(field => before[field] !== after[field] && !(field === 'status' && isStop));
    if (changed !== undefined)
      this.breach(`run ${run} is expired, and ${changed} went from ${before[changed]} to ${after[changed]}`);
  }

  /** A run that is over for good gets no document of a stream after its documents expired. A new stream may open a failed run. */
  onStreamCreated(path: string, run: string): void {
    const {expired_at, status} = this.context.store.peek(paths.run(run)) ?? {};
    if (typeof expired_at === 'string' && status === 'stopped')
      this.breach(`${path} was created, and run ${run} is ${status} and expired`);
  }

  /**
   * The documents of a run that ended long ago are gone, and stay gone until the run goes on. A stream that is dropped into a failed run
   * since then has its document until the next day, in which no world is.
   */
  override atTheEnd(): void {
    const {aged, clockwork, store} = this.context;
    for (const run of aged) {
      const found = store.peek(paths.run(run)) ?? {};
      const {expired_at} = found;
      const isOldEnd = Date.parse(String(found.updated_at)) < clockwork.now - KEPT_MS;
      const kept = store.collection(paths.streams(run)).length;
      if (isEnded(found) && isOldEnd && kept > 0 && typeof expired_at !== 'string')
        this.breach(`run ${run} ended at ${found.updated_at}, and has the documents of ${kept} streams`);
      if (!isEnded(found) || typeof expired_at !== 'string') continue;
      const isOld = ({created_at}: Document) => String(created_at) < expired_at;
      const left = store.collection(paths.streams(run)).filter(({data}) => isOld(data)).length;
      if (left > 0)
        this.breach(`run ${run} is expired since ${expired_at}, and has the documents of ${left} streams`);
    }
  }
}
