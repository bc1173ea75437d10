/** Deletes the documents of streams and shards of runs that ended long ago. The bucket keeps the same facts, and the run its totals. */
import {KEPT_DAYS} from '../../contracts/settings/config.ts';
import {paths} from '../../domain/names.ts';
import {isOpen, type Run} from '../../domain/records/run.ts';
import {isOlderThan, iso, utcText} from '../../domain/time.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import type {Deps} from '../deps.ts';
import {ENDED, leftAlone, runRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';

const RUNS = 50;
/** Streams that one step deletes, and shard documents in one transaction. */
const STREAMS = 20;
const SHARDS = 400;

/**
 * Deletes documents of the runs after `after`, until a step is done. Returns the name after which the next step begins; undefined after the
 * last run.
 */
export async function expirePage(deps: Deps, after: string): Promise<string | undefined> {
  const query = {where: [ENDED], limit: RUNS, ...(after === '' ? {} : {after})};
  const page = await deps.store.query('runs', query);
  let last = after;
  for (const run of runRecords.parseAll(page, leftAlone(deps.log))) {
    // The next step begins with this run again.
    if (await expireSome(deps, run)) return last;
    last = run.run;
  }
  const isLast = page.length < RUNS;
  return isLast ? undefined : page.at(-1)?.id;
}

/** Deletes some documents of a run that ended long ago. Returns false if none is left. */
async function expireSome(deps: Deps, run: Run): Promise<boolean> {
  const {store} = deps;
  const isMarked = run.expired_at !== null;
  if (!isMarked && !isOlderThan(run.updated_at, KEPT_DAYS.streams * 86_400, deps.now())) return false;
  const collection = paths.streams(run.run);
  const streams = await store.query(collection, {limit: STREAMS});
  if (streams.length === 0 || (!isMarked && !(await markExpired(deps, run)))) return false;
  await forEachConcurrently(streams, ({path, id}) => deleteStream(deps, run, path, id));
  return true;
}

/** Marks the run as expired first: from now on no count proves anything about its streams. */
async function markExpired({store, log, now}: Deps, {run, updated_at}: Run): Promise<boolean> {
  return store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    if (!current || current.updated_at !== updated_at || isOpen(current)) return false;
    runRecords.set(tx, {...current, expired_at: iso(now())});
    const text = `The documents of the streams of run ${run} are deleted: it ended at ${utcText(updated_at)}. The bucket keeps its output`;
    log('INFO', text, {run});
    recordEvent(tx, {kind: 'run', run, text}, now());
    return true;
  });
}

/** Deletes the shards of a stream, then the stream, unless its run was reopened. */
export async function deleteStream({store}: Deps, {run}: Run, path: string, stream: string): Promise<void> {
  for (;;) {
    const shards = await store.query(paths.shards(run, stream), {limit: SHARDS});
    const isGone = await store.transaction(async tx => {
      const current = await runRecords.get(tx, run);
      if (!current || isOpen(current) || current.expired_at === null) return true;
      for (const shard of shards) tx.delete(shard.path);
      if (shards.length < SHARDS) tx.delete(path);
      return shards.length < SHARDS;
    });
    if (isGone) return;
  }
}
