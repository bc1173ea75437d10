/** The steps of each task: a page of its work, and the cursor of the next. */
import {addSkus, type Found, NO_PRICES} from '../../domain/billing/catalog.ts';
import {paths} from '../../domain/names.ts';
import {expiresFrom, isOpen, type Run} from '../../domain/records/run.ts';
import {withMark} from '../../domain/run/marks.ts';
import {snapshotsByPool} from '../../domain/tick/pools.ts';
import {isOlderThan, utcText} from '../../domain/time.ts';
import {forEachConcurrently} from '../calls/concurrency.ts';
import {Failures} from '../calls/failures.ts';
import type {Deps} from '../deps.ts';
import {runRecords, skipIfInvalid, UNFINISHED} from '../documents/documents.ts';
import {storeCatalog} from '../documents/prices.ts';
import {reopenRun} from '../documents/runs.ts';
import {isOpenTask, startTask, type Task} from '../documents/tasks.ts';
import {expireCheckpoints} from '../jobs/sweep-checkpoints.ts';
import {type Deleted, deletePage} from '../runs/delete-run.ts';
import {ensureRun} from '../runs/ensure-run.ts';
import {expirePage} from '../runs/expire-run.ts';
import {updateTotals} from '../runs/summarize-run.ts';
import {advanceStream} from '../streams/advance-checkpoint.ts';
import {auditPage} from '../streams/audit-streams.ts';
import {addToTally, describeTally, NOTHING_FOUND, type Tally} from '../streams/compare-streams.ts';
import {rebuildPage} from '../streams/rebuild-streams.ts';
import {type BucketCursor, countPage, registerPage} from '../streams/resync-streams.ts';
import {listNodes} from '../tick/list-nodes.ts';
import {readBudgets, readSnapshot} from '../tick/read-snapshot.ts';
import {deleteOrphans} from '../workers/delete-orphans.ts';
import {type Fold, finishRun, newFold} from './finish-run.ts';
import {sendNotices} from './send-notices.ts';

/** The next page, or the result. `waits`: the tick republishes the task later. */
export type Step = {cursor: unknown} | {result: string} | {waits: string};

export const STEPS: Record<Task['task'], (deps: Deps, task: Task, until_ms: number) => Promise<Step>> = {
  register,
  rebuild: (deps, task) => (task.run === null ? rebuildAll(deps, task) : rebuildRun(deps, task, task.run)),
  resync,
  finish,
  delete: deleteRun,
  prices,
  expire,
  notify: (deps, _, until_ms) => sendNotices(deps, until_ms),
};

async function register(deps: Deps, task: Task): Promise<Step> {
  const run = task.run ?? '';
  const parent = await ensureRun(deps, run);
  if (!parent?.spec) return {result: `run ${run} waits for a valid run.json: ${parent?.reason}`};
  const next = await registerPage(deps, parent, cursorOf(task, ''));
  if (next !== undefined) return {cursor: next};
  return {result: `every stream of run ${run} is registered`};
}

type RebuildCursor = {after: string; tally: Tally};

async function rebuildRun(deps: Deps, task: Task, run: string): Promise<Step> {
  const {after, tally} = cursorOf<RebuildCursor>(task, {after: '', tally: NOTHING_FOUND});
  const parent = await ensureRun(deps, run);
  if (!parent) throw new Error(`Failed to rebuild run ${run}: it has no document`);
  const from = expiresFrom(parent);
  if (from !== null && parent.status !== 'active' && isOlderThan(from, 0, deps.now()))
    return {
      result: `refused: shards of run ${run} have expired since ${from}, and a rebuild would compute them again`,
    };
  if (parent.expired_at !== null && parent.status === 'stopped')
    return {
      result: `refused: run ${run} was stopped, and the documents of its streams were deleted at ${utcText(parent.expired_at)}. \`gleaner run verify ${run}\` reads its output in the bucket`,
    };
  const {found, next} = await rebuildPage(deps, parent, after);
  const all = addToTally(tally, found);
  if (next !== undefined) return {cursor: {after: next, tally: all}};
  if (all.streams === 0)
    return {result: `refused: there is nothing to rebuild: the bucket holds no stream of run ${run}`};
  await updateTotals(deps, run, true);
  return {result: `rebuilt ${describeTally(run, all, true)}`};
}

type RebuildAllCursor = {at: BucketCursor; runs: number};

/** Deletes nodes without a document, then opens one task for each run in the bucket. */
async function rebuildAll(deps: Deps, task: Task): Promise<Step> {
  if (task.cursor === '') {
    const remaining = await deleteAllOrphans(deps);
    if (remaining.length === 0) return {cursor: {at: FIRST_NAME, runs: 0}};
    return {
      waits: `${remaining.length} nodes without a document are being deleted, the first is ${remaining[0]}; the rebuild goes on when they are gone`,
    };
  }
  const {at, runs} = cursorOf<RebuildAllCursor>(task, {at: FIRST_NAME, runs: 0});
  const {runs: page, next} = await countPage(deps, at);
  // A repeated page does not reopen a task that this rebuild has opened already.
  const isOfThis = ({created_at}: Task) => created_at >= task.created_at;
  await forEachConcurrently(page, ({run}) => startTask(deps, {task: 'rebuild', run}, isOfThis));
  const all = runs + page.length;
  if (next) return {cursor: {at: next, runs: all}};
  return {result: `${all} runs have a rebuild task each: tasks/rebuild-RUN has the result of a run`};
}

async function deleteAllOrphans(deps: Deps): Promise<readonly string[]> {
  const failures = new Failures(deps);
  const listing = failures.isolate('list the nodes', () => listNodes(deps));
  const budgets = await readBudgets(deps, failures);
  const snapshot = await readSnapshot(deps, budgets, listing, failures);
  const remaining: string[] = [];
  for (const part of snapshotsByPool(snapshot)) {
    const {left, freedStreams} = await deleteOrphans(deps, part, failures);
    for (const {run, stream} of freedStreams)
      await skipIfInvalid(deps.log, () => advanceStream(deps, run, stream));
    remaining.push(...left);
  }
  failures.rethrow();
  return remaining;
}

async function finish(deps: Deps, task: Task, until_ms: number): Promise<Step> {
  const name = task.run ?? '';
  const run = await runRecords.get(deps.store, name);
  if (!run || !isOpen(run)) return {result: `run ${name} has ended`};
  const fold = cursorOf<Fold | undefined>(task, undefined) ?? (await newFold(deps, name));
  const ending = await finishRun(deps, run, fold, until_ms);
  if (ending.kind === 'later') return {cursor: ending.fold};
  if (ending.kind === 'waits') return {waits: ending.reason};
  return {result: ending.kind === 'ended' ? `run ${name} has ended` : `a stream of run ${name} goes on`};
}

/** A repeated page deletes what is left. */
async function deleteRun(deps: Deps, task: Task): Promise<Step> {
  const name = task.run ?? '';
  const {objects, size_bytes} = cursorOf<Deleted>(task, {objects: 0, size_bytes: 0});
  const page = await deletePage(deps, name);
  if (page === undefined && (await runRecords.get(deps.store, name)))
    return {result: `refused: run ${name} was opened again`};
  if (page === undefined) return {result: `run ${name} is deleted`};
  return {cursor: {objects: objects + page.objects, size_bytes: size_bytes + page.size_bytes}};
}

type PricesCursor = {page: string; found: Found};

/** Reads a page of the Billing Catalog. After the last page the prices are stored. After a failure the prices stay until the next day. */
async function prices(deps: Deps, task: Task): Promise<Step> {
  const {page, found} = cursorOf<PricesCursor>(task, {page: '', found: NO_PRICES});
  try {
    const {skus, next} = await deps.catalog.page(page);
    const all = addSkus(found, skus, deps.now());
    if (next !== '') return {cursor: {page: next, found: all}};
    const {changed, kept} = await storeCatalog(deps.store, all, deps.now());
    for (const text of changed) deps.log('INFO', `The price of ${text}`);
    return {result: `${changed.length} prices changed, ${kept.length} are not of the Billing Catalog`};
  } catch (error) {
    const {message} = error as Error;
    deps.log('WARNING', `The prices stay as they are until tomorrow: ${message}`);
    return {result: `failed: ${message}`};
  }
}

async function expire(deps: Deps, task: Task): Promise<Step> {
  const {of, after} = cursorOf<{of: 'runs' | 'checkpoints'; after: string}>(task, {of: 'runs', after: ''});
  const next = await (of === 'runs' ? expirePage : expireCheckpoints)(deps, after);
  if (next !== undefined) return {cursor: {of, after: next}};
  if (of === 'runs') return {cursor: {of: 'checkpoints', after: ''}};
  return {result: 'the documents of old runs, and the checkpoints of deleted jobs, are deleted'};
}

type ResyncCursor = {kind: 'bucket'; at: BucketCursor} | {kind: 'workers'; after: string};

const FIRST_NAME: BucketCursor = {after: '', run: '', stream: '', streams: 0};

const FIRST: ResyncCursor = {kind: 'bucket', at: FIRST_NAME};

/** Looks for streams without a document, run by run, and then compares the checkpoints of leased streams. */
async function resync(deps: Deps, task: Task): Promise<Step> {
  const cursor = cursorOf<ResyncCursor>(task, FIRST);
  if (cursor.kind === 'workers') {
    const after = await auditPage(deps, cursor.after);
    return after === undefined ? {result: 'the bucket was compared'} : {cursor: {kind: 'workers', after}};
  }
  const {runs, next} = await countPage(deps, cursor.at);
  await forEachConcurrently(runs, ({run, streams}) =>
    skipIfInvalid(deps.log, () => resyncRun(deps, run, streams)),
  );
  return {cursor: next ? {kind: 'bucket', at: next} : {kind: 'workers', after: ''}};
}

/** For this long after the end of a run, late shards are added to its totals. */
const LATE_S = 86_400;

/**
 * Registers the streams of a run that lacks its document or stream documents. Reopens an ended run with an unfinished stream, unless every
 * stream fails. Adds late shards to the totals of an ended run.
 */
async function resyncRun(deps: Deps, run: string, streams: number): Promise<void> {
  const {store} = deps;
  const parent = await runRecords.get(store, run);
  if (parent && !isOpen(parent) && !isOlderThan(parent.updated_at, LATE_S, deps.now()))
    await updateTotals(deps, run);
  if (parent?.status === 'stopped' || parent?.stopped_at || parent?.expired_at) return;
  const documents = await store.count(paths.streams(run));
  if (parent && isOpen(parent)) await markIfDifferent(deps, parent, documents);
  const isAnyMissing = !parent || documents < streams;
  if (isAnyMissing) await startTask(deps, {task: 'register', run}, isOpenTask);
  const hasEnded =
    parent?.status === 'completed' || (parent?.status === 'failed' && parent.certain_failure === null);
  if (!hasEnded || (await store.count(paths.streams(run), [UNFINISHED])) === 0) return;
  await store.transaction(async tx => {
    reopenRun(tx, await runRecords.get(tx, run), 'a stream is unfinished', deps.now());
  });
}

/** Flags a run whose counts differ from its streams although no flag is set: a person has changed a stream. */
async function markIfDifferent({store, log, now}: Deps, seen: Run, documents: number): Promise<void> {
  const {run, changed_at, streams_pending, streams_in_progress, streams_completed, streams_failed} = seen;
  if (changed_at !== null) return;
  const unfinished = streams_pending + streams_in_progress;
  const isSame =
    documents === unfinished + streams_completed + streams_failed &&
    (await store.count(paths.streams(run), [UNFINISHED])) === unfinished;
  if (isSame) return;
  const decide = (current: Run) =>
    current.updated_at === seen.updated_at ? withMark(current, now()) : undefined;
  await runRecords.change(store, [run], decide, () =>
    log('WARNING', `Streams of run ${run} changed without a dirty flag: the next tick counts them`, {run}),
  );
}

function cursorOf<T>({cursor}: Task, first: T): T {
  return cursor === '' ? first : (JSON.parse(cursor) as T);
}
