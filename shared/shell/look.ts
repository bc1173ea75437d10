import {NOTHING_STORED} from '../core/checkpoint.ts';
import {costOfLiving} from '../core/cost.ts';
import {isExpired, revokeLease} from '../core/lease.ts';
import {paths} from '../core/names.ts';
import {slotsOf} from '../core/pool.ts';
import {isOpen, type Run, type StreamFacts, summarizeRun} from '../core/run.ts';
import {isUnfinished, type Stream} from '../core/stream.ts';
import {isOlderThan, iso} from '../core/time.ts';
import type {Phase} from '../core/worker.ts';
import type {Deps} from './deps.ts';
import {writeResult} from './finish.ts';
import {takeMissedStreams} from './intake.ts';
import {advanceStream} from './progress.ts';
import {runRecords, streamRecords, UNFINISHED, unlessBroken} from './records.ts';
import {isAnyToClose, openRuns, whatIsLeft} from './runs.ts';
import {tell} from './timeline.ts';
import {adoptNodes, lookAtNodes, lookAtWorkers, readFleet, readPool} from './workers.ts';

/**
 * The tick: looks at everything and reaches the same decisions from nothing but state, so that any event may be lost.
 * With nothing left to do it switches the beat off, and on again if something came meanwhile.
 */
export async function lookAtEverything(deps: Deps): Promise<void> {
  const look = await lookAtNodes(deps);
  await takeMissedStreams(deps);
  const fleet = await adoptNodes(deps, look, await readFleet(deps));
  const living = costOfLiving(fleet.workers.values(), deps.now());
  const failures: unknown[] = [];
  for (const run of await openRuns(deps)) {
    const cost = living.runs.get(run.run) ?? 0;
    await unlessBroken(deps, () => lookAtRun(deps, run, cost)).catch(error => failures.push(error));
  }
  const busy = await lookAtWorkers(deps, look, fleet);
  // A run that cannot be looked at now keeps the beat, and keeps neither another run nor a TPU waiting.
  if (failures.length > 0) throw failures[0];
  // A zone that does not answer may hide a node that no document knows: nobody rests before it was seen.
  const pool = await readPool(deps);
  const isBlind = look.unreachable.some(zone => pool.zones.includes(zone));
  if (busy || isBlind || (await isAnythingLeft(deps))) return;
  await deps.ticker.off();
  if (await isAnythingLeft(deps)) await deps.ticker.on();
}

/**
 * Expires leases, audits checkpoints against the bucket, and sums the run up. A run is called completed when its manifest says
 * what was stored.
 */
export async function lookAtRun(deps: Deps, run: Run, cost_of_living_usd: number): Promise<void> {
  const stored = await deps.store.query(paths.streams(run.run));
  const looked: StreamFacts[] = [];
  const streams = streamRecords.parseAll(stored, (error, stream) => {
    deps.log('ERROR', error.message, {run: run.run});
    looked.push({...NOTHING_STORED, stream, status: 'failed', last_error: error.message});
  });
  for (const stream of streams)
    looked.push(
      (isUnfinished(stream) && (await unlessBroken(deps, () => lookAtStream(deps, stream)))) || stream,
    );
  const isDone = summarizeRun(run, looked, cost_of_living_usd, deps.now()).status === 'completed';
  if (isDone && !(await writeResult(deps, run))) return lookAtRun(deps, run, cost_of_living_usd);
  const ended = await deps.store.transaction(async tx => {
    const current = await runRecords.get(tx, run.run);
    // What a slow look has seen is no reason to open a run that another one has closed since.
    if (!current || (isOpen(run) && !isOpen(current))) return false;
    const now = deps.now();
    const next = summarizeRun(current, looked, cost_of_living_usd, now);
    if (next === current) return false;
    runRecords.set(tx, next);
    if (next.status !== current.status)
      tell(
        tx,
        {
          kind: 'run',
          run: run.run,
          text: `Run ${run.run} is ${next.status}${next.reason ? `: ${next.reason}` : ''}`,
        },
        now,
      );
    return !isOpen(next);
  });
  if (ended) await reopen(deps, run.run, looked.length);
}

/** A stream that was registered between the reading of the streams and the end of their run saw no reason to open it again. */
async function reopen(deps: Deps, run: string, known: number): Promise<void> {
  const stored = await deps.store.query(paths.streams(run), {where: [UNFINISHED]});
  const late = streamRecords.parseAll(stored, () => {});
  if (late.length === 0 && (await deps.store.count(paths.streams(run))) === known) return;
  await deps.store.transaction(async tx => {
    const current = await runRecords.get(tx, run);
    if (current?.status !== 'completed' && current?.status !== 'failed') return;
    const now = deps.now();
    runRecords.set(tx, {...current, status: 'active', updated_at: iso(now)});
    tell(tx, {kind: 'run', run, text: `Run ${run} is active again: a stream came while it ended`}, now);
  });
}

async function lookAtStream(deps: Deps, stream: Stream): Promise<Stream> {
  const due = isOlderThan(stream.updated_at, deps.config.audit_s, deps.now());
  const audited = due ? ((await advanceStream(deps, stream.run, stream.stream)) ?? stream) : stream;
  if (!isExpired(audited, deps.now())) return audited;
  return deps.store.transaction(async tx => {
    const current = await streamRecords.get(tx, stream.run, stream.stream);
    const now = deps.now();
    if (!current || !isExpired(current, now)) return current ?? stream;
    const free = revokeLease(current, now);
    streamRecords.set(tx, free);
    const text = `The lease of ${stream.run}/${stream.stream} ran out: ${current.lease?.worker} did not renew it`;
    const {epoch} = current;
    tell(tx, {kind: 'stream', run: stream.run, stream: stream.stream, epoch, text}, now);
    return free;
  });
}

/** Whether a beat is needed, asked anew after it was switched off. */
async function isAnythingLeft(deps: Deps): Promise<boolean> {
  const living: Phase[] = ['creating', 'booting', 'idle', 'working', 'draining', 'deleting'];
  if ((await deps.store.count('workers', [{field: 'phase', op: 'in', value: living}])) > 0) return true;
  if (await isAnyToClose(deps)) return true;
  const pool = await readPool(deps);
  const held = await deps.store.query('workers', {where: [{field: 'held', op: '==', value: true}]});
  const away = new Set(held.map(({id}) => id));
  if (slotsOf(pool).every(({name}) => away.has(name))) return false;
  const {streams, fixed} = await whatIsLeft(deps, pool);
  return streams > 0 || fixed.size > 0;
}
