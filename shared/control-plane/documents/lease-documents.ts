/**
 * A lease is stored in two documents, that of its stream and that of its worker, because heartbeats read only the worker. Every change of a
 * lease reads and changes both in one transaction.
 */

import {parseWork, paths} from '../../domain/names.ts';
import type {Job} from '../../domain/records/job.ts';
import type {Run} from '../../domain/records/run.ts';
import type {Stream} from '../../domain/records/stream.ts';
import {type Worker, withoutWork} from '../../domain/records/worker.ts';
import type {Advance} from '../../domain/stream/advance.ts';
import {isHeldBy, isLeasedTo, returnedStream, revokeLease} from '../../domain/stream/lease.ts';
import type {Transaction} from '../../ports/ports.ts';
import type {Log} from '../calls/log.ts';
import type {Services} from '../calls/services.ts';
import {runRecords, shardRecords, streamRecords, workerRecords} from './documents.ts';
import {recordBreak, recordEvent} from './event-log.ts';
import {jobOf} from './job-documents.ts';
import {reopenRun} from './runs.ts';

export async function workOf(log: Log, tx: Transaction, worker: Worker): Promise<Stream | undefined> {
  const work = parseWork(worker.work);
  if (!work) return undefined;
  const stream = await streamRecords.read(log, tx, work.run, work.stream);
  return stream && isLeasedTo(stream, {worker: worker.name, incarnation: worker.incarnation})
    ? stream
    : undefined;
}

export async function holdsWork(deps: Services, tx: Transaction, worker: Worker) {
  return ((await workOf(deps.log, tx, worker)) ?? (await jobOf(deps, tx, worker))) !== undefined;
}

/** Reads the worker that holds the lease of the stream or the job, for `clearWork` when the lease ends. */
export async function holderOf(
  log: Log,
  tx: Transaction,
  leased: Stream | Job | undefined,
): Promise<Worker | undefined> {
  const name = leased?.lease?.worker;
  if (!name) return undefined;
  const worker = await workerRecords.read(log, tx, name);
  return isHeldBy(leased, worker) ? worker : undefined;
}

export async function suspectedBy(log: Log, tx: Transaction, {suspect}: Worker): Promise<Stream | undefined> {
  const work = parseWork(suspect?.work ?? null);
  return work && streamRecords.read(log, tx, work.run, work.stream);
}

/** Clears the work of the holders. Each agent is notified at its next heartbeat. */
export function clearWork(tx: Transaction, ...holders: readonly (Worker | undefined)[]): void {
  for (const holder of holders) if (holder) workerRecords.set(tx, withoutWork(holder));
}

/** Reads the run of a stream that failed because of its machines. Must be called before the first write of the transaction. */
export async function runOfFailed(log: Log, tx: Transaction, free: Stream): Promise<Run | undefined> {
  return free.status === 'failed' ? runRecords.read(log, tx, free.run) : undefined;
}

/** Stores the released stream and clears its holder. A stream that failed because of its machines is an event, and counts in its run `parent`. */
export function returnStream(
  log: Log,
  tx: Transaction,
  free: Stream,
  holder: Worker | undefined,
  now: number,
  parent?: Run,
): void {
  const {breaker, events = []} = returnedStream(free, parent, now);
  streamRecords.set(tx, free);
  clearWork(tx, holder);
  if (breaker) setBreaker(log, tx, breaker, now);
  for (const event of events) recordEvent(tx, event, now);
}

/** Stores the run of a stream that failed because of its machines or its model. A pause or an end by its breaker raises an event and an alert. */
export function setBreaker(log: Log, tx: Transaction, run: {before: Run; after: Run}, now: number): void {
  runRecords.set(tx, run.after);
  recordBreak(log, tx, run.before, run.after, now);
}

export function freeStream(tx: Transaction, stream: Stream, holder: Worker | undefined, now: number): void {
  streamRecords.set(tx, revokeLease(stream, now));
  clearWork(tx, holder);
}

/** Stores an advanced or failed stream with its new shards. A failed stream loses its holder; a revived stream reopens its run. */
export async function storeAdvance(
  log: Log,
  tx: Transaction,
  before: Stream,
  {stream: next, countedShards, events}: Advance,
  now: number,
): Promise<void> {
  if (next === before) return;
  const {run, stream} = next;
  const holder = next.status === 'failed' ? await holderOf(log, tx, before) : undefined;
  // A failed stream turns out to be complete, so its run may have ended.
  const isRevived = before.status === 'failed' && next.status === 'completed';
  const ended = isRevived ? await runRecords.get(tx, run) : undefined;
  streamRecords.set(tx, next);
  clearWork(tx, holder);
  reopenRun(tx, ended, `stream ${stream} is complete after all`, now);
  for (const shard of countedShards) shardRecords.set(tx, paths.shard(run, stream, shard.shard), shard);
  for (const event of events) recordEvent(tx, event, now);
}
