import {NOTHING_STORED} from '../core/checkpoint.ts';
import {costOfLiving} from '../core/cost.ts';
import {freeFromLiving, hasRunOut, isHeldBy} from '../core/lease.ts';
import {parseWork, paths, workerIdOf} from '../core/names.ts';
import {slotsOf} from '../core/pool.ts';
import {
  factsOf,
  isOpen,
  type Run,
  type StreamFacts,
  type StreamTotals,
  SUMMED,
  summarizeRun,
  totalsOf,
} from '../core/run.ts';
import {isAlive, type Worker} from '../core/worker.ts';
import type {Query, Stored} from '../ports.ts';
import {abreast} from './abreast.ts';
import type {Deps} from './deps.ts';
import {writeResult} from './finish.ts';
import {freeStream, holderOf, putBack, takeWork, tellHolders, workOf} from './holders.ts';
import {nextToList, takeMissedStreams, takeUnknown} from './missed.ts';
import {isAnyNodeLeft, isBlind, lookAtNodes, NOT_LOOKED} from './nodes.ts';
import {keepOrdersOf} from './orders.ts';
import {readPool} from './pools.ts';
import {advanceStream} from './progress.ts';
import {
  FAILED,
  HELD,
  LEASED,
  runRecords,
  streamRecords,
  UNFINISHED,
  unlessBroken,
  workerRecords,
} from './records.ts';
import {isAnyToClose, reopenRun, whatIsLeft} from './runs.ts';
import {tell} from './timeline.ts';
import {addLateShards} from './totals.ts';
import {type Fleet, LIVING, lookAtWorkers, readFleet} from './workers.ts';

/** The Scheduler's beat. */
const TICK_S = 60;
/** Runs that are looked at at once; each asks for a handful of sums. */
const RUNS_ABREAST = 8;
/** How many streams are read at once where all of a run are needed. */
const PAGE = 2000;

/**
 * The tick: looks at everything and reaches the same decisions from nothing but state, so that any event may be lost. What it
 * reads grows with the workers, not with the streams: those are counted and added up where they lie.
 * With nothing left to do it switches the beat off, and on again if something came meanwhile.
 */
export async function lookAtEverything(deps: Deps): Promise<void> {
  const failures: unknown[] = [];
  // Of nodes that cannot be listed nothing is concluded; budgets, pauses and stops need no list.
  const look = await lookAtNodes(deps).catch(error => {
    failures.push(error);
    return NOT_LOOKED;
  });
  await takeMissedStreams(deps).catch(error => failures.push(error));
  const fleet = await readFleet(deps);
  await audit(deps, fleet).catch(error => failures.push(error));
  await heedRuns(deps, fleet).catch(error => failures.push(error));
  const living = costOfLiving(fleet.workers.values(), deps.now());
  const atWork = workersByRun(fleet);
  const lookAt = (run: Run) => {
    const cost_usd = run.spent_usd + (living.runs.get(run.run) ?? 0);
    return lookAtRun(deps, run, {fleet, atWork: atWork.get(run.run) ?? 0, cost_usd});
  };
  await abreast(
    fleet.runs,
    run => unlessBroken(deps, () => lookAt(run)).catch(error => failures.push(error)),
    RUNS_ABREAST,
  );
  const {busy, held} = await lookAtWorkers(deps, look, fleet);
  await endSilentLeases(deps, fleet);
  await keepOrdersOf(deps, held).catch(error => failures.push(error));
  // What cannot be looked at now keeps the beat, and keeps neither another run nor a TPU waiting.
  if (failures.length > 0) throw failures[0];
  // Any call may have taken minutes: what was seen is old then, and a later tick may have come to rest meanwhile.
  const isSlow = () => deps.now() - look.at_ms > TICK_S * 1000;
  const isLeft = busy || (await isBlind(deps, look.unreachable)) || (await isAnythingLeft(deps));
  if (isLeft || (isSlow() && (await isAnyNodeLeft(deps)))) {
    if (isSlow()) await deps.ticker.on();
    return;
  }
  await deps.ticker.off();
  // Something may have come meanwhile. What cannot be asked now may be there.
  const isAwake = async () => (await isAnythingLeft(deps)) || (await isAnyNodeLeft(deps));
  if (await isAwake().catch(() => true)) await deps.ticker.on();
}

type Counted = StreamTotals & {unfinished: number};

/**
 * What the streams of a run are together, without reading them. Whether any is unfinished is one question, so that a stream that
 * goes from one state to the other meanwhile is not missed by both.
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
  return {
    unfinished,
    streams_pending: Math.max(0, unfinished - leased),
    streams_in_progress: Math.min(leased, unfinished),
    streams_failed: failures,
    streams_completed: Math.max(0, all - unfinished - failures),
    ...sums,
    failed: first && {stream: first.id, last_error: textOf(first.data.last_error)},
  };
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

/** Finds leases that nobody has, and sums the run up; its end is looked at stream by stream. */
async function lookAtRun(deps: Deps, run: Run, {fleet, atWork, cost_usd}: Seen): Promise<void> {
  const {unfinished, ...totals} = await countStreams(deps, run.run);
  // Leases come and go while they are counted: among many, a few more than workers say nothing.
  if (totals.streams_in_progress - atWork > atWork / 100) await endOrphanedLeases(deps, run.run, fleet);
  // A paused run with a failed stream stays open, and every tick would read all its streams.
  const staysOpen = run.status === 'paused' && unfinished === 0 && totals.streams_failed > 0;
  const isOver = unfinished === 0 || (atWork === 0 && !(await isAnyReadable(deps, run.run)));
  if (isOver && !staysOpen) await lookAtEveryStream(deps, run, cost_usd);
  else await sumUp(deps, run, totals, cost_usd);
}

/** The workers, how many of them work on the run, and what it has cost. */
type Seen = {fleet: Fleet; atWork: number; cost_usd: number};

function workersByRun(fleet: Fleet): Map<string, number> {
  const runs = new Map<string, number>();
  for (const {work} of fleet.workers.values()) {
    const run = parseWork(work)?.run;
    if (run) runs.set(run, (runs.get(run) ?? 0) + 1);
  }
  return runs;
}

/** Whether any unfinished stream can be read: one that somebody broke counts as failed. */
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

/** Whoever edits documents can make a lease of which no worker knows: the stream is free again. */
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
        const text = `The lease of ${run}/${stream} is nobody's: ${current.lease.worker} has it no more`;
        tell(tx, {kind: 'stream', run, stream, text}, now);
      });
      await advanceStream(deps, run, stream);
    });
  }
}

/**
 * A worker that lives and has not said for long that it has its lease, as under repair or after its host restarted, loses it.
 * Those that are dead have lost theirs before, with their death as the reason.
 */
async function endSilentLeases(deps: Deps, fleet: Fleet): Promise<void> {
  const isLate = (worker: Worker) => hasRunOut(worker, deps.config.lease_s, deps.now());
  const silent = [...fleet.workers.values()].filter(isLate);
  await abreast(silent, async ({name}) => {
    const freed = await deps.store.transaction(async tx => {
      const worker = await workerRecords.get(tx, name);
      if (!worker || !isLate(worker)) return undefined;
      const stream = await workOf(deps, tx, worker);
      if (!stream) {
        takeWork(tx, worker);
        return undefined;
      }
      const now = deps.now();
      const free = freeFromLiving(stream, worker, 'it ran out', now);
      putBack(tx, free, worker, now);
      const text = `The lease of ${worker.work} ran out: ${name} has not claimed it for ${deps.config.lease_s} s`;
      const {run, epoch} = stream;
      tell(tx, {kind: 'stream', run, stream: stream.stream, epoch, text}, now);
      return stream;
    });
    if (freed) await unlessBroken(deps, () => advanceStream(deps, freed.run, freed.stream));
  });
}

/**
 * Compares the checkpoints of streams at work with the bucket, each once in `audit_s`, some at every tick: an event that was lost
 * shows in the next one, or when the stream is given back, and here if neither comes.
 */
async function audit(deps: Deps, fleet: Fleet): Promise<void> {
  const rounds = Math.max(1, Math.round(deps.config.audit_s / TICK_S));
  const round = Math.floor(deps.now() / (TICK_S * 1000)) % rounds;
  const due = [...fleet.workers.values()].flatMap(worker => {
    const work = parseWork(worker.work);
    const isDue = work && isAlive(worker) && workerIdOf(work.stream) % rounds === round;
    return isDue ? [{worker, ...work}] : [];
  });
  await abreast(due, ({worker, run, stream}) =>
    unlessBroken(deps, async () => {
      const found = await advanceStream(deps, run, stream);
      if (found?.status !== 'completed' && !(found && isHeldBy(found, worker))) await disabuse(deps, worker);
    }),
  );
}

/** Runs that were paused or ended by hand, or by a message that could not tell everybody: their workers hear it from here. */
async function heedRuns(deps: Deps, fleet: Fleet): Promise<void> {
  const active = new Set(fleet.runs.filter(({status}) => status === 'active').map(({run}) => run));
  const unheeded = [...fleet.workers.values()].flatMap(({work, drains}) => {
    const run = parseWork(work)?.run;
    return run === undefined || drains || active.has(run) ? [] : run;
  });
  await abreast([...new Set(unheeded)], run => unlessBroken(deps, () => tellHolders(deps, run)));
}

/** A worker of which only its own document says that it has its lease is asked again at its next heartbeat. */
async function disabuse(deps: Deps, {name}: Worker): Promise<void> {
  await deps.store.transaction(async tx => {
    const worker = await workerRecords.get(tx, name);
    if (worker?.work && !(await workOf(deps, tx, worker))) takeWork(tx, worker);
  });
}

/**
 * Sums up a run stream by stream. If none is left, and the bucket has none without a document, it is called completed, when its
 * manifest says what was stored.
 */
export async function lookAtEveryStream(deps: Deps, run: Run, cost_usd: number): Promise<void> {
  const looked: StreamFacts[] = [];
  const known = new Set<string>();
  let failed = 0;
  for await (const page of pages(deps, run.run, {})) {
    for (const {id} of page) known.add(id);
    const streams = streamRecords.parseAll(page, (error, stream) => {
      deps.log('ERROR', error.message, {run: run.run});
      looked.push({...NOTHING_STORED, stream, status: 'failed', last_error: error.message});
    });
    for (const stream of streams) looked.push(factsOf(stream));
    failed += streams.filter(({status}) => status === 'failed').length;
  }
  const totals = totalsOf(looked);
  const next = summarizeRun(run, totals, cost_usd, deps.now());
  const again = () => lookAtEveryStream(deps, run, cost_usd);
  if (isOpen(run) && !isOpen(next) && (await takeUnknown(deps, run.run, known))) return again();
  if (next.status === 'completed' && !(await writeResult(deps, run))) return again();
  if (!(await sumUp(deps, run, totals, cost_usd))) return;
  await reopen(deps, run.run, {streams: looked.length, failed});
  await addLateShards(deps, run.run);
}

/** True when the run has ended. */
async function sumUp(deps: Deps, seen: Run, totals: StreamTotals, cost_usd: number): Promise<boolean> {
  const {run} = seen;
  return deps.store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    // What a slow look has seen is no reason to open a run that another one has closed since.
    if (!current || (isOpen(seen) && !isOpen(current))) return false;
    const now = deps.now();
    const next = summarizeRun(current, totals, cost_usd, now);
    if (next === current) return false;
    runRecords.set(tx, next);
    const why = next.reason ? `: ${next.reason}` : '';
    if (next.status !== current.status)
      tell(tx, {kind: 'run', run, text: `Run ${run} is ${next.status}${why}`}, now);
    return !isOpen(next);
  });
}

/**
 * A stream that was registered between the reading of the streams and the end of their run saw no reason to open it again, nor did
 * one that was parked when it was read and has been completed since.
 */
async function reopen(deps: Deps, run: string, seen: {streams: number; failed: number}): Promise<void> {
  const streams = paths.streams(run);
  const isSame =
    !(await isAnyReadable(deps, run)) &&
    (await deps.store.count(streams)) === seen.streams &&
    (await deps.store.count(streams, [FAILED])) >= seen.failed;
  if (isSame) return;
  await deps.store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    reopenRun(tx, current, 'a stream changed while it ended', deps.now());
  });
}

/** Whether a beat is needed, asked anew after it was switched off. */
async function isAnythingLeft(deps: Deps): Promise<boolean> {
  if ((await deps.store.count('workers', [LIVING])) > 0) return true;
  // What lies behind the place where the last look stopped may have come without an event.
  if ((await nextToList(deps)) !== '') return true;
  if (await isAnyToClose(deps)) return true;
  const pool = await readPool(deps);
  const held = await deps.store.query('workers', {where: [HELD]});
  const away = new Set(held.map(({id}) => id));
  if (slotsOf(pool).every(({name}) => away.has(name))) return false;
  const {open, fixed} = await whatIsLeft(deps, pool);
  return [...fixed.keys()].some(name => !away.has(name)) || open.some(({streams}) => streams > 0);
}
