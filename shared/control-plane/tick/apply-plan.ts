/** Applies the plans of a tick: each decision in a transaction that decides again from its documents. */
import {isPausedByBudget} from '../../domain/billing/budget.ts';
import {parseJobWork} from '../../domain/names.ts';
import {isRunnable, pausedFor, type Run} from '../../domain/records/run.ts';
import type {Worker, Workers} from '../../domain/records/worker.ts';
import {afterModelPause} from '../../domain/run/model-failures.ts';
import type {Pause} from '../../domain/tick/budgets.ts';
import type {BudgetPlan, RunPlan, TickPlan} from '../../domain/tick/plan-tick.ts';
import {slotsThatChange} from '../../domain/tick/slots.ts';
import type {Snapshot} from '../../domain/tick/snapshot.ts';
import {iso} from '../../domain/time.ts';
import {batchesOf, forEachConcurrently, MASS_LANES} from '../calls/concurrency.ts';
import type {Failures} from '../calls/failures.ts';
import type {Deps} from '../deps.ts';
import {createsRecords, runRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {isOpenTask, publishOpenTasks, startTask} from '../documents/tasks.ts';
import {endLostExecs} from '../execs/end-exec.ts';
import {endExpiredJobs, reportLongJobs} from '../jobs/end-jobs.ts';
import {failedAmong} from '../runs/count-streams.ts';
import {FINISHING, storeRunTotals, updateTotals} from '../runs/summarize-run.ts';
import {advanceStream} from '../streams/advance-checkpoint.ts';
import {notifyWorkers, revokeExpired, revokeOrphaned, yieldToJob} from '../streams/revoke-leases.ts';
import {deleteStrays} from '../workers/delete-orphans.ts';
import {merged, type Reconciled, reconcileWorkers} from '../workers/reconcile-workers.ts';
import {applyHellos, markOrphans, reportHeld} from '../workers/zone-reports.ts';
import {findMissing} from './list-nodes.ts';
import {storeReservationTimeout, storeWaits} from './store-waits.ts';

const POOLS_AT_ONCE = 4;

const MOST_NOTIFIED = 50;

/** Pauses runs that are over their budget or in a wrong region, deletes their workers, and resumes runs that try their model again. */
export async function applyBudgets(deps: Deps, plan: BudgetPlan, failures: Failures): Promise<Reconciled> {
  await failures.each(plan.pauses, each => [`pause run ${each.run}`, () => pauseRun(deps, each)]);
  await failures.each(plan.reasons, each => [
    `store why ${each.run} is paused`,
    () => storeReason(deps, each),
  ]);
  await failures.each(plan.retries, run => [`try the model of ${run} again`, () => tryModelAgain(deps, run)]);
  return reconcileWorkers(deps, plan.deletes, plan.inputs, failures);
}

/** The next tick plans the TPUs of the run. */
async function tryModelAgain({store, log, now}: Deps, run: string) {
  const decide = (current: Run) => afterModelPause(current, now());
  await runRecords.change(store, [run], decide, tx => {
    const text = `Run ${run} tries its model again`;
    log('INFO', text, {run});
    recordEvent(tx, {kind: 'run', run, text}, now());
  });
}

async function pauseRun({store, log, now}: Deps, {run, version, reason, isForBudget}: Pause) {
  // A run that was configured since waits for the next tick.
  const decide = (current: Run) =>
    isRunnable(current) && current.version === version
      ? {...current, ...pausedFor(reason, now())}
      : undefined;
  await runRecords.change(store, [run], decide, tx => {
    const text = `Run ${run} is paused: ${reason}`;
    log('WARNING', text, {run, ...(isForBudget ? {signal: 'budget-spent'} : {})});
    recordEvent(tx, {kind: 'run', run, text}, now());
  });
}

async function storeReason({store, now}: Deps, {run, version, reason}: Pause) {
  await runRecords.change(store, [run], current =>
    isPausedByBudget(current) && current.version === version
      ? {...current, reason, updated_at: iso(now())}
      : undefined,
  );
}

type Part = {snapshot: Snapshot; plan: TickPlan};

/** Applies the plans of all pools: deletes and creates, then leases and runs, then tasks. `spent`: what the budget plans have deleted. */
export async function applyPlans(
  deps: Deps,
  parts: readonly Part[],
  spent: readonly Reconciled[],
  failures: Failures,
): Promise<void> {
  const outcomes = new Map<Part, Reconciled>();
  for (const part of parts) outcomes.set(part, await applyToSlots(deps, part, failures));
  await failures.isolate('record the pools without their nodes', () => recordLate(deps, outcomes));
  // Shards whose events are still on their way are counted before the next lease.
  await failures.each(merged([...spent, ...outcomes.values()]).freedStreams, ({run, stream}) => [
    `count the shards of ${run}/${stream}`,
    () => advanceStream(deps, run, stream),
  ]);
  const workers = new Map(parts.flatMap(({snapshot}) => [...snapshot.workers]));
  await applyToLeases(deps, parts, workers, failures);
  await forEachConcurrently(
    parts,
    part => applyToRuns(deps, part, outcomes.get(part)?.heldWorkers ?? [], failures),
    POOLS_AT_ONCE,
  );
  await failures.isolate('end lost commands', () => endLostExecs(deps, workers));
  await failures.isolate('publish open tasks', () => publishOpenTasks(deps));
}

async function applyToSlots(deps: Deps, {snapshot, plan}: Part, failures: Failures): Promise<Reconciled> {
  const {inputs} = plan;
  await failures.isolate('apply first heartbeats', () => applyHellos(deps, plan.hellos, snapshot));
  await failures.isolate('mark orphans', () => markOrphans(deps, plan.orphans, inputs));
  const deleted = await reconcileWorkers(deps, plan.deletes, inputs, failures);
  const others = await reconcileWorkers(deps, plan.others, inputs, failures);
  const read = await reconcileMissing(deps, plan, failures);
  return merged([deleted, others, read]);
}

async function reconcileMissing(deps: Deps, {missing, inputs}: TickPlan, failures: Failures) {
  const workers = missing.flatMap(({seen}) => seen ?? []);
  const nodes = await findMissing(deps, inputs.nodes, workers);
  const answered = {...inputs, nodes};
  const {deletes, others} = slotsThatChange(missing, answered, deps.config.limits, deps.now());
  const deleted = await reconcileWorkers(deps, deletes, answered, failures);
  const rest = await reconcileWorkers(deps, others, answered, failures);
  return merged([deleted, rest]);
}

/** Warns about requests that were dropped because their plan was old. The next tick plans their pools first. */
async function recordLate({store, log, now}: Deps, outcomes: ReadonlyMap<Part, Reconciled>): Promise<void> {
  const late = [...outcomes].flatMap(([{snapshot}, {lateSlots}]) =>
    lateSlots.length > 0 ? snapshot.pool.pool : [],
  );
  const [part] = outcomes.keys();
  const before = part?.snapshot.late_pools ?? [];
  if (late.length === 0 && before.length === 0) return;
  const dropped = merged([...outcomes.values()]).lateSlots.length;
  const text = `${dropped} requests for nodes are dropped, because the tick was slow: it began with other pools than ${late.join(', ')}. The next tick begins with these`;
  if (late.length > 0) log('WARNING', text, {signal: 'creates-late'});
  await store.transaction(async tx => {
    const creates = await createsRecords.read(log, tx);
    createsRecords.set(tx, {...creates, late_pools: late});
    if (late.length > 0) recordEvent(tx, {kind: 'zone', text}, now());
  });
}

/** Leases and notifications of all pools together, because each collection has its own ramp of writes. */
async function applyToLeases(
  deps: Deps,
  parts: readonly Part[],
  workers: Workers,
  failures: Failures,
): Promise<void> {
  const [first] = parts;
  if (!first) return;
  const {servedTime} = first.snapshot;
  const hasJob = (name: string) => parseJobWork(workers.get(name)?.work ?? null) !== undefined;
  const expired = parts.flatMap(({plan}) => plan.expired);
  const {jobs = [], streams = []} = Object.groupBy(expired, name => (hasJob(name) ? 'jobs' : 'streams'));
  await failures.isolate('revoke expired leases', () => revokeExpired(deps, streams, servedTime));
  await failures.isolate('end expired jobs', () => endExpiredJobs(deps, jobs, servedTime));
  await failures.isolate('report long jobs', () => reportLongJobs(deps, workers.values()));
  const notices = parts.flatMap(({plan}) => plan.notices);
  const batches = notices.flatMap(({run, workers}) =>
    batchesOf(workers, MOST_NOTIFIED).map(batch => ({run, batch})),
  );
  await failures.each(
    batches,
    ({run, batch}) => [`notify workers of run ${run}`, () => notifyWorkers(deps, run, batch)],
    MASS_LANES,
  );
  await failures.each(notices, ({run}) => [`update the totals of run ${run}`, () => updateTotals(deps, run)]);
  const yields = parts.flatMap(({plan}) => plan.yields);
  await failures.each(yields, each => [`yield ${each.worker} to a job`, () => yieldToJob(deps, each)]);
}

async function applyToRuns(deps: Deps, {snapshot, plan}: Part, held: readonly Worker[], failures: Failures) {
  await failures.isolate('delete strays', () => deleteStrays(deps, plan.strays));
  await failures.isolate('store why work waits', () => storeWaits(deps, snapshot, plan.constraints));
  await failures.each(plan.reservationTimeouts, each => [
    `pause ${each.zone} for job ${each.job}`,
    () => storeReservationTimeout(deps, each),
  ]);
  await failures.isolate('report held workers', () => reportHeld(deps, snapshot, held));
  await failures.each(plan.runs, each => [
    `store the totals of run ${each.run.run}`,
    () => applyRun(deps, snapshot, each),
  ]);
}

async function applyRun(deps: Deps, {workers, unreadable}: Snapshot, plan: RunPlan): Promise<void> {
  const {run, counts, costs, waits} = plan;
  if (plan.hasOrphanedLeases) await revokeOrphaned(deps, run.run, {workers, unreadable});
  const isOver = plan.next === 'finish';
  const finishing = run.reason?.startsWith(FINISHING) ? run.reason : FINISHING;
  const ending = isOver ? finishing : 'its last workers still hold its streams';
  const isKnown = counts.counted_ms !== null || run.streams_failed === 0;
  const totals = isKnown ? counts.totals : {...counts.totals, failed: await failedAmong(deps.store, run.run)};
  await storeRunTotals(deps, run, totals, costs, {ending, waits, counts});
  if (isOver) await startTask(deps, {task: 'finish', run: run.run}, isOpenTask);
}
