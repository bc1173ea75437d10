/** Documents of decisions about slots: a transaction reads them, decides, and writes each changed document once. */

import {NotUnderstood} from '../../contracts/errors.ts';
import {unpaid, unpaidText} from '../../domain/billing/bills.ts';
import {runAtWork, runsAmong} from '../../domain/billing/cost.ts';
import {paths} from '../../domain/names.ts';
import {newWorker, type Worker} from '../../domain/records/worker.ts';
import type {SharedDocuments} from '../../domain/tick/shared-documents.ts';
import type {SlotDocuments, SlotWrites, Work} from '../../domain/tick/slot-writes.ts';
import {becomesGone, type Slot, type SlotDecision} from '../../domain/tick/slots.ts';
import {isMachineDeath} from '../../domain/worker/liveness.ts';
import {isEnding} from '../../domain/zone/zone-changes.ts';
import type {DecisionContext} from '../deps.ts';
import {
  attemptRecords,
  createsRecords,
  LEFT_ALONE,
  leftAlone,
  poolRecords,
  runRecords,
  skipIfInvalid,
  spendingRecords,
  workerRecords,
  zoneRecords,
} from '../documents/documents.ts';
import {recordBreak, recordEvent} from '../documents/event-log.ts';
import {jobOf, membersOf, storeEnded} from '../documents/job-documents.ts';
import {returnStream, suspectedBy, workOf} from '../documents/lease-documents.ts';
import {zoneOf} from '../documents/zones.ts';

/**
 * Reads the worker of a slot. Undefined if its document was lost since the plan, so that its node is an orphan from the next tick on, or if
 * it is invalid, so that the next tick chooses another slot.
 */
export async function readSlot(
  {deps, tx, now}: DecisionContext,
  {name, place, seen}: Slot,
): Promise<Worker | undefined> {
  const {log, slotsLeftAlone} = deps;
  try {
    return (await workerRecords.get(tx, name)) ?? (seen ? undefined : newWorker(name, place, now));
  } catch (error) {
    if (!(error instanceof NotUnderstood)) throw error;
    slotsLeftAlone.set(name, error.document);
    leftAlone(log)(error);
    return undefined;
  }
}

/** Reads the documents that the decisions may change besides their workers. */
export async function readSlotDocuments(
  turn: DecisionContext,
  pool: string,
  decisions: readonly SlotDecision[],
): Promise<SlotDocuments> {
  const gone = decisions.filter(({before, worker}) => becomesGone(before, worker)).map(({worker}) => worker);
  const works = await Promise.all(
    decisions.map(async decision => [decision.before.name, await readWork(turn, decision)] as const),
  );
  const shared = await readShared(turn, pool, decisions, gone);
  const attempts = await Promise.all(
    gone.map(async ({name, incarnation}) => {
      const path = paths.attempt(name, incarnation);
      const attempt = await skipIfInvalid(turn.deps.log, () => attemptRecords.get(turn.tx, path));
      return attempt ? [[path, attempt] as const] : [];
    }),
  );
  return {shared, works: new Map(works), attempts: new Map(attempts.flat())};
}

async function readWork({deps, tx}: DecisionContext, {before, worker, death}: SlotDecision): Promise<Work> {
  const isEnd = isEnding(before, worker);
  const job = isEnd ? await jobOf(deps, tx, before) : undefined;
  return {
    stream: isEnd ? await workOf(deps.log, tx, before) : undefined,
    job,
    members: job ? await membersOf(deps, tx, job, before.name) : [],
    suspectStream: death?.kind === 'silent' ? await suspectedBy(deps.log, tx, before) : undefined,
  };
}

async function readShared(
  turn: DecisionContext,
  pool: string,
  decisions: readonly SlotDecision[],
  gone: readonly Worker[],
) {
  const {deps, tx, now} = turn;
  const {config, log} = deps;
  const isAnyAsked = decisions.some(({change}) => change === 'asked');
  const isBootDecided = decisions.some(
    ({before, death}) => (death || before.is_canary) && before.agent_at === null,
  );
  const isChanged = ({before, change, death}: SlotDecision) => change || death || before.is_canary;
  const zones = new Set([
    ...decisions.flatMap(decision => (isChanged(decision) ? decision.before.zone : [])),
    ...gone.map(({zone}) => zone),
  ]);
  const deaths = decisions.filter(({death}) => death && isMachineDeath(death));
  const runs = new Set([
    // A node that was never READY has no costs yet.
    ...gone.flatMap(({costs, charged_to}) => runsAmong({...costs, ...(charged_to ? {[charged_to]: 0} : {})})),
    ...deaths.flatMap(({before}) => runAtWork(before) ?? []),
  ]);
  const isPoolNeeded = gone.length > 0 || isAnyAsked || isBootDecided;
  const readRun = (run: string) => runRecords.read(log, tx, run);
  const readRuns = await Promise.all([...runs].map(readRun));
  const readZone = async (zone: string) => [zone, await zoneOf(deps, tx, {zone, pool}, now)] as const;
  return {
    creates: isAnyAsked ? await createsRecords.read(log, tx) : undefined,
    runs: new Map(readRuns.flatMap(run => (run ? [[run.run, run] as const] : []))),
    pool: isPoolNeeded ? await skipIfInvalid(log, () => poolRecords.find(tx, pool, config.pool)) : undefined,
    spending: gone.length > 0 ? await skipIfInvalid(log, () => spendingRecords.get(tx)) : undefined,
    zones: new Map(await Promise.all([...zones].map(readZone))),
  };
}

export function writeSlots({deps, tx, now}: DecisionContext, before: SharedDocuments, writes: SlotWrites) {
  const {log} = deps;
  for (const worker of writes.workers) workerRecords.set(tx, worker);
  for (const [path, attempt] of writes.attempts) attemptRecords.set(tx, path, attempt);
  for (const stream of writes.streams.values()) returnStream(log, tx, stream, undefined, now);
  for (const {before, ended} of writes.jobs) storeEnded(deps, tx, before, ended, now);
  for (const event of writes.events) recordEvent(tx, event, now);
  for (const {worker, text} of writes.stops) {
    log('ERROR', text, {worker, signal: 'creates-stopped'});
    recordEvent(tx, {kind: 'worker', worker, text}, now);
  }
  const {creates, zones, runs, pool, spending} = writes.shared;
  if (creates && creates !== before.creates) createsRecords.set(tx, creates);
  for (const [name, zone] of zones) if (zone !== before.zones.get(name)) zoneRecords.set(tx, zone);
  for (const [name, run] of runs) {
    const earlier = before.runs.get(name);
    if (!earlier || run === earlier) continue;
    runRecords.set(tx, run);
    recordBreak(log, tx, earlier, run, now);
  }
  if (pool && pool !== before.pool) poolRecords.set(tx, pool);
  if (spending && spending !== before.spending) spendingRecords.set(tx, spending);
  for (const [payer, usd] of unpaid(before, writes.endedWorkers))
    log('ERROR', unpaidText(payer, usd), LEFT_ALONE);
}
