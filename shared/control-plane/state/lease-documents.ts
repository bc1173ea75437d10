/**
 * A lease stands in two documents, its stream's and its worker's. Whoever changes it reads both first and changes both in one
 * transaction: the worker's heartbeats look at the worker alone.
 */
import {afterMachineFailedStream} from '../../domain/fleet/breakers.ts';
import {parseWork, paths} from '../../domain/names.ts';
import {isOpen, type Run} from '../../domain/run/run.ts';
import {isHeldBy, isLeasedTo, revokeLease} from '../../domain/stream/lease.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import {type Worker, withoutWork} from '../../domain/worker/worker.ts';
import type {Transaction} from '../../ports.ts';
import {abreast} from './concurrency.ts';
import type {Deps} from './deps.ts';
import {LEASED, runRecords, streamRecords, unlessBroken, workerRecords} from './documents.ts';
import {tell, tellPaused} from './event-log.ts';

/** The stream whose lease the worker has. */
export async function workOf(deps: Deps, tx: Transaction, worker: Worker): Promise<Stream | undefined> {
  const work = parseWork(worker.work);
  if (!work) return undefined;
  const found = await unlessBroken(deps, () => streamRecords.get(tx, work.run, work.stream));
  return found && isLeasedTo(found, {worker: worker.name, incarnation: worker.incarnation})
    ? found
    : undefined;
}

/** The worker that believes that it has the stream's lease, to be told with `takeWork` when that ends. */
export async function holderOf(
  deps: Deps,
  tx: Transaction,
  stream: Stream | undefined,
): Promise<Worker | undefined> {
  const name = stream?.lease?.worker;
  if (!name) return undefined;
  const worker = await unlessBroken(deps, () => workerRecords.get(tx, name));
  return isHeldBy(stream, worker) ? worker : undefined;
}

/** The stream that the worker lost by falling silent. */
export async function suspectedBy(
  deps: Deps,
  tx: Transaction,
  {suspect}: Worker,
): Promise<Stream | undefined> {
  const work = parseWork(suspect?.work ?? null);
  return work && unlessBroken(deps, () => streamRecords.get(tx, work.run, work.stream));
}

export function takeWork(tx: Transaction, holder: Worker | undefined): void {
  if (holder) workerRecords.set(tx, withoutWork(holder));
}

/** The run of a stream that its machines have failed, to be counted there; read before anything is written. */
export async function runOfFailed(deps: Deps, tx: Transaction, free: Stream): Promise<Run | undefined> {
  return free.status === 'failed' ? unlessBroken(deps, () => runRecords.get(tx, free.run)) : undefined;
}

/** The stream without its holder. A stream that failed for its machines is recorded, and counted in `parent`, its run. */
export function putBack(
  tx: Transaction,
  free: Stream,
  holder: Worker | undefined,
  now: number,
  parent?: Run,
): void {
  streamRecords.set(tx, free);
  takeWork(tx, holder);
  if (free.status !== 'failed') return;
  if (parent) setMachineFailed(tx, parent, free, now);
  const {run, stream, epoch, faults, last_error} = free;
  const text = `Stream ${run}/${stream} is parked after ${faults} machines in a row that stored nothing: ${last_error}; retry revives it`;
  tell(tx, {kind: 'stream', run, stream, epoch, text}, now);
}

export function setMachineFailed(tx: Transaction, parent: Run, {stream}: Stream, now: number): void {
  const next = afterMachineFailedStream(parent, stream, now);
  runRecords.set(tx, next);
  tellPaused(tx, parent, next, now);
}

/** Takes the lease from its worker. */
export function freeStream(tx: Transaction, stream: Stream, holder: Worker | undefined, now: number): void {
  streamRecords.set(tx, revokeLease(stream, now));
  takeWork(tx, holder);
}

/** Workers that are told in one transaction. */
const MOST_TOLD = 50;

/**
 * Tells those at work on a run what has become of it, at their next heartbeat: one that is paused gets its streams back with the shard in
 * hand, one that was stopped at once.
 */
export async function tellHolders(deps: Deps, run: string): Promise<void> {
  const leased = await deps.store.query(paths.streams(run), {where: [LEASED]});
  const turns = Array.from({length: Math.ceil(leased.length / MOST_TOLD)}, (_, turn) =>
    leased.slice(turn * MOST_TOLD, (turn + 1) * MOST_TOLD),
  );
  await abreast(turns, some =>
    deps.store.transaction(async tx => {
      const parent = await runRecords.get(tx, run);
      if (!parent) return;
      const drains = parent.status === 'paused';
      const held = await Promise.all(
        some.map(async ({id}) => {
          const stream = await unlessBroken(deps, () => streamRecords.get(tx, run, id));
          return {stream, holder: await holderOf(deps, tx, stream)};
        }),
      );
      for (const {stream, holder} of held)
        if (stream && !isOpen(parent)) freeStream(tx, stream, holder, deps.now());
        else if (holder && holder.drains !== drains) workerRecords.set(tx, {...holder, drains});
    }),
  );
}
