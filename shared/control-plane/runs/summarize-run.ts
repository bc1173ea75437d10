/** Sums a run up. The Store counts and adds up its streams. When all have ended, one pass reads each stream. */

import {paths} from '../../domain/names.ts';
import {isOpen, type Run, type StreamTotals, SUMMED, summarizeRun} from '../../domain/run/run.ts';
import {isHeldBy} from '../../domain/stream/lease.ts';
import type {Query, Stored} from '../../ports.ts';
import {abreast} from '../state/concurrency.ts';
import type {Deps} from '../state/deps.ts';
import {FAILED, LEASED, runRecords, streamRecords, UNFINISHED} from '../state/documents.ts';
import {tell} from '../state/event-log.ts';
import {freeStream, holderOf} from '../state/lease-documents.ts';
import {advanceStream} from '../streams/advance-checkpoint.ts';
import type {Fleet} from '../workers/plan-fleet.ts';
import {addLateShards} from './late-shards.ts';
import {reopenRun} from './open-runs.ts';
import {type Ending, foldRun, forgetFold, READING_MS} from './run-result.ts';

/** How many streams are read at once where all of a run are needed. */
const PAGE = 2000;

type Counted = {streams: number; unfinished: number; totals: StreamTotals};

/**
 * Counts and adds up the streams of a run without reading them. One count finds the unfinished streams. Two counts, one for each
 * unfinished status, could both miss a stream that changes its status between them.
 */
async function countStreams(deps: Deps, run: string): Promise<Counted> {
  const streams = paths.streams(run);
  const [unfinished, leased, failures, all, failed, sums] = await Promise.all([
    deps.store.count(streams, [UNFINISHED]),
    deps.store.count(streams, [LEASED]),
    deps.store.count(streams, [FAILED]),
    deps.store.count(streams),
    deps.store.query(streams, {where: [FAILED], limit: 1}),
    deps.store.sum(streams, SUMMED),
  ]);
  const [first] = failed;
  const totals = {
    streams_pending: Math.max(0, unfinished - leased),
    streams_in_progress: Math.min(leased, unfinished),
    streams_failed: failures,
    streams_completed: Math.max(0, all - unfinished - failures),
    ...sums,
    failed: first && {stream: first.id, last_error: textOf(first.data.last_error)},
  };
  return {streams: all, unfinished, totals};
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

/** The workers, how many of them work on the run, and what it has cost. */
export type Seen = {fleet: Fleet; atWork: number; cost_usd: number};

/** A run whose streams have all ended and which no worker works on. */
export type Over = {run: Run; cost_usd: number; streams: number};

/** Finds leases that no worker has, and sums the run up; a run that is over is answered, and stays open until `endRun`. */
export async function lookAtRun(deps: Deps, run: Run, {fleet, atWork, cost_usd}: Seen): Promise<Over[]> {
  const counted = await countStreams(deps, run.run);
  // Leases come and go while they are counted: among many, a few more than workers say nothing.
  if (counted.totals.streams_in_progress - atWork > atWork / 100)
    await endOrphanedLeases(deps, run.run, fleet);
  // A paused run with a failed stream stays open, and every tick would read all its streams.
  const staysOpen = run.status === 'paused' && counted.unfinished === 0 && counted.totals.streams_failed > 0;
  const isOver = atWork === 0 && (await areAllOver(deps, run.run, counted));
  if (isOver && !staysOpen) return [{run, cost_usd, streams: counted.streams}];
  await sumUp(deps, run, counted.totals, cost_usd, 'its last workers still hold its streams');
  return [];
}

/** An unfinished stream that cannot be read counts as failed. */
async function areAllOver(deps: Deps, run: string, {unfinished}: Counted): Promise<boolean> {
  return unfinished === 0 || !(await isAnyReadable(deps, run));
}

async function isAnyReadable(deps: Deps, run: string): Promise<boolean> {
  for await (const page of pages(deps, run, {where: [UNFINISHED]}, 30))
    if (streamRecords.parseAll(page, () => {}).length > 0) return true;
  return false;
}

async function* pages(deps: Deps, run: string, query: Query, limit = PAGE): AsyncGenerator<Stored[]> {
  let after: {after?: string} = {};
  for (;;) {
    const page = await deps.store.query(paths.streams(run), {...query, ...after, limit});
    yield page;
    const last = page.at(-1);
    if (page.length < limit || !last) return;
    after = {after: last.id};
  }
}

/** Frees every stream whose lease no worker has: an edit by hand can make such a lease. */
async function endOrphanedLeases(deps: Deps, run: string, fleet: Fleet): Promise<void> {
  const broken = (error: Error) => deps.log('ERROR', error.message, {run});
  for await (const page of pages(deps, run, {where: [LEASED]})) {
    const orphans = streamRecords.parseAll(page, broken).filter(stream => {
      const worker = stream.lease && fleet.workers.get(stream.lease.worker);
      return !(worker && isHeldBy(stream, worker));
    });
    await abreast(orphans, async ({stream}) => {
      await deps.store.transaction(async tx => {
        const current = await streamRecords.get(tx, run, stream);
        if (!current?.lease || (await holderOf(deps, tx, current))) return;
        const now = deps.now();
        freeStream(tx, current, undefined, now);
        const text = `The lease of ${run}/${stream} is revoked: ${current.lease.worker} has it no more`;
        tell(tx, {kind: 'stream', run, stream, text}, now);
      });
      await advanceStream(deps, run, stream);
    });
  }
}

/** Sums up a run that was changed from outside a tick, and ends it where all of its streams have ended. */
export async function lookAtEveryStream(deps: Deps, run: Run, cost_usd: number): Promise<void> {
  const counted = await countStreams(deps, run.run);
  if (await areAllOver(deps, run.run, counted))
    await endRun(deps, {run, cost_usd, streams: counted.streams}, deps.now() + READING_MS);
  else await sumUp(deps, run, counted.totals, cost_usd, 'its streams are looked at');
}

/**
 * Goes through the streams of a run that is over. If none is left, and the bucket has none without a document, the run is called
 * completed when its manifest says what was stored. A large run stays open until a later tick has read the last of its streams.
 */
export async function endRun(deps: Deps, {run, cost_usd, streams}: Over, until_ms: number): Promise<void> {
  const ending = await foldRun(deps, run, until_ms);
  if (ending.kind === 'ended') {
    if (await sumUp(deps, run, ending.totals, cost_usd)) {
      await reopen(deps, run.run, ending);
      await addLateShards(deps, run.run);
    }
    await forgetFold(deps, run.run);
    return;
  }
  const read = ending.kind === 'later' ? ending.streams : 0;
  const {totals} = await countStreams(deps, run.run);
  await sumUp(deps, run, totals, cost_usd, `writing its result: ${read} of ${streams} streams are read`);
}

/** True when the run has ended. `ending`: why it does not end yet, also if all of its streams have. */
async function sumUp(
  deps: Deps,
  seen: Run,
  totals: StreamTotals,
  cost_usd: number,
  ending?: string,
): Promise<boolean> {
  const {run} = seen;
  return deps.store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    // Another look may have closed the run since: the counts of a slow look never open it again.
    if (!current || (isOpen(seen) && !isOpen(current))) return false;
    const now = deps.now();
    const next = summarizeRun(current, totals, cost_usd, now, ending);
    if (next === current) return false;
    runRecords.set(tx, next);
    const why = next.reason ? `: ${next.reason}` : '';
    if (next.status !== current.status)
      tell(tx, {kind: 'run', run, text: `Run ${run} is ${next.status}${why}`}, now);
    return !isOpen(next);
  });
}

/**
 * Opens the run again where a stream changed while the run ended. Such a stream saw an open run. It was registered after the streams
 * were read, or was parked when it was read and has been completed since.
 */
async function reopen(deps: Deps, run: string, {totals, streams, broken}: Ending & {kind: 'ended'}) {
  const path = paths.streams(run);
  const isSame =
    !(await isAnyReadable(deps, run)) &&
    (await deps.store.count(path)) === streams &&
    (await deps.store.count(path, [FAILED])) >= totals.streams_failed - broken;
  if (isSame) return;
  await deps.store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    reopenRun(tx, current, 'a stream changed while it ended', deps.now());
  });
}
