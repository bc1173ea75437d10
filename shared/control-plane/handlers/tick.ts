import {costOfLiving} from '../../domain/billing/cost.ts';
import {slotsOf} from '../../domain/fleet/pool.ts';
import {parseWork, workerIdOf} from '../../domain/names.ts';
import {goneText, type Run} from '../../domain/run/run.ts';
import {freeFromLiving, hasRunOut, isHeldBy, revokeLease, suspectOf} from '../../domain/stream/lease.ts';
import type {Stream} from '../../domain/stream/stream.ts';
import {NEVER_SERVED, type Served} from '../../domain/worker/served-time.ts';
import {isAlive, type Worker} from '../../domain/worker/worker.ts';
import {isAnyToClose, whatIsLeft} from '../runs/open-runs.ts';
import {READING_MS} from '../runs/run-result.ts';
import {endRun, lookAtRun, type Over} from '../runs/summarize-run.ts';
import {abreast} from '../state/concurrency.ts';
import type {Deps} from '../state/deps.ts';
import {HELD, streamRecords, unlessBroken, workerRecords} from '../state/documents.ts';
import {tell} from '../state/event-log.ts';
import {Failures} from '../state/failures.ts';
import {putBack, runOfFailed, takeWork, tellHolders, workOf} from '../state/lease-documents.ts';
import {keepOrdersOf} from '../state/orders.ts';
import {readPool} from '../state/pools.ts';
import {advanceStream} from '../streams/advance-checkpoint.ts';
import {nextToList, takeMissedStreams} from '../streams/resync-streams.ts';
import {type Fleet, LIVING, lookAtWorkers, readFleet} from '../workers/plan-fleet.ts';
import {isAnyNodeLeft, isBlind, type Look, lookAtNodes, NOT_LOOKED} from '../workers/provider-snapshot.ts';

/** The Scheduler's beat. */
const TICK_S = 60;
/** Missed streams are taken until so long after the tick began; the first of them always are. */
const TAKING_MS = 20_000;
/** Results are read until so long after the tick began, so that its call ends within a minute; and at least for five seconds. */
const TICK_MOST_MS = 40_000;
const LEAST_READING_MS = 5000;
/** Runs that are looked at at once; each asks for a handful of sums. */
const RUNS_ABREAST = 8;

/**
 * The tick: looks at everything and reaches the same decisions from nothing but state, so that any event may be lost. What it
 * reads grows with the workers, not with the streams: those are counted and added up where they lie.
 *
 * Money first: budgets and deletes are out before anything else is looked at, and results are written last. A part that fails is
 * logged, stops no other part, and makes the tick run again. With nothing left to do the beat goes off, and on again if work came
 * meanwhile.
 */
export async function lookAtEverything(deps: Deps): Promise<void> {
  const failures = new Failures(deps);
  const began_ms = deps.now();
  // Of nodes that cannot be listed nothing is concluded; budgets, pauses and stops need no list, and do not wait for it.
  const listing = failures.isolate('list the nodes', () => lookAtNodes(deps));
  const isBusy = await lookAtFleet(deps, listing, failures, began_ms);
  const look = (await listing) ?? NOT_LOOKED;
  // A tick that failed leaves the beat on, which runs it again.
  failures.rethrow();
  // Any call may have taken minutes: what was seen is old then, and a later tick may have come to rest meanwhile.
  const isSlow = () => deps.now() - look.at_ms > TICK_S * 1000;
  const isLeft = isBusy || (await isBlind(deps, look.unreachable)) || (await isAnythingLeft(deps));
  if (isLeft || (isSlow() && (await isAnyNodeLeft(deps)))) {
    if (isSlow()) await deps.ticker.on();
    return;
  }
  await deps.ticker.off();
  // Something may have come meanwhile. What cannot be asked now may be there.
  const isAwake = async () => (await isAnythingLeft(deps)) || (await isAnyNodeLeft(deps));
  if (await isAwake().catch(() => true)) await deps.ticker.on();
}

/** Decides about workers, and then looks at leases, runs, streams and results; true while any worker is not gone. */
async function lookAtFleet(
  deps: Deps,
  listing: Promise<Look | undefined>,
  failures: Failures,
  began_ms: number,
): Promise<boolean> {
  const fleet = await failures.isolate('read the fleet', () => readFleet(deps));
  if (!fleet) return true;
  const decided = await failures.isolate('decide about the workers', () =>
    lookAtWorkers(deps, listing, fleet, failures),
  );
  await failures.isolate('end silent leases', () =>
    endSilentLeases(deps, fleet, decided?.served ?? NEVER_SERVED),
  );
  await failures.isolate('tell the workers of paused and ended runs', () => heedRuns(deps, fleet));
  await failures.isolate('keep the orders of paused runs', () => keepOrdersOf(deps, decided?.held ?? []));
  await failures.isolate('take missed streams', () => takeMissedStreams(deps, began_ms + TAKING_MS));
  const over = await lookAtRuns(deps, fleet, failures);
  await failures.isolate('audit the streams at work', () => audit(deps, fleet));
  await endRuns(deps, over, failures, began_ms);
  return decided?.busy ?? true;
}

/** Sums up every open run, and answers those that are over. */
async function lookAtRuns(deps: Deps, fleet: Fleet, failures: Failures): Promise<Over[]> {
  const living = costOfLiving(fleet.workers.values(), deps.now());
  const atWork = workersByRun(fleet);
  const over: Over[] = [];
  const lookAt = async (run: Run) => {
    const cost_usd = run.spent_usd + (living.runs.get(run.run) ?? 0);
    over.push(...(await lookAtRun(deps, run, {fleet, atWork: atWork.get(run.run) ?? 0, cost_usd})));
  };
  await abreast(
    fleet.runs,
    run => failures.isolate(`look at run ${run.run}`, () => lookAt(run)),
    RUNS_ABREAST,
  );
  return over;
}

/**
 * One run after the other, because each takes the memory of many reads; the small ones do not wait for a large one. Reads for less
 * time where the tick has taken long already.
 */
async function endRuns(
  deps: Deps,
  over: readonly Over[],
  failures: Failures,
  began_ms: number,
): Promise<void> {
  const now = deps.now();
  const left_ms = Math.max(LEAST_READING_MS, began_ms + TICK_MOST_MS - now);
  const until_ms = now + Math.min(READING_MS, left_ms);
  for (const each of over.toSorted((one, other) => one.streams - other.streams))
    await failures.isolate(`end run ${each.run.run}`, () => endRun(deps, each, until_ms));
}

function workersByRun(fleet: Fleet): Map<string, number> {
  const runs = new Map<string, number>();
  for (const {work} of fleet.workers.values()) {
    const run = parseWork(work)?.run;
    if (run) runs.set(run, (runs.get(run) ?? 0) + 1);
  }
  return runs;
}

/**
 * A worker that lives and has not said for long that it has its lease, as under repair or after its host restarted, loses it.
 * Those that are dead have lost theirs before, with their death as the reason.
 */
async function endSilentLeases(deps: Deps, fleet: Fleet, served: Served): Promise<void> {
  const isLate = (worker: Worker) => hasRunOut(worker, deps.config.lease_s, served);
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
      const suspect = suspectOf(worker, stream, deps.config.lease_s, served);
      const free = suspect ? revokeLease(stream, now) : freeFromLiving(stream, worker, now);
      const parent = await runOfFailed(deps, tx, free);
      putBack(tx, free, {...worker, suspect}, now, parent);
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
      if (found?.status === 'in_progress') await noteIfGone(deps, found);
      if (found?.status !== 'completed' && !(found && isHeldBy(found, worker))) await disabuse(deps, worker);
    }),
  );
}

/** The worker goes on from its copy of a stream object that was deleted; a person hears that nothing can be compared with it. */
async function noteIfGone(deps: Deps, {run, stream, object, last_error}: Stream): Promise<void> {
  const text = goneText({object, count: 1});
  if (last_error === text || (await deps.objects.head(object))) return;
  await deps.store.transaction(async tx => {
    const current = await streamRecords.get(tx, run, stream);
    if (current?.status !== 'in_progress' || current.object !== object) return;
    streamRecords.set(tx, {...current, last_error: text});
    tell(tx, {kind: 'stream', run, stream, object, text}, deps.now());
  });
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
