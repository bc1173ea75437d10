import type {Run} from '../../domain/records/run.ts';
import {
  answerWithoutLease,
  decideRelease,
  isHeldBySender,
  type Release,
  type ReleaseState,
} from '../../domain/requests/release-stream.ts';
import type {Transaction} from '../../ports/ports.ts';
import {isLarge, needsNoTick} from '../caches/pool-cache.ts';
import type {Deps} from '../deps.ts';
import {runRecords, streamRecords, workerRecords} from '../documents/documents.ts';
import {updateTotals} from '../runs/summarize-run.ts';
import {advanceAndKeep, reportObject} from '../streams/advance-checkpoint.ts';
import {checked} from './authenticate.ts';
import {transact} from './write.ts';

/** Counts the stored shards of the stream, then releases its lease. */
export const releaseStream = checked('release', async (deps, worker, request) => {
  const {run, stream} = request.lease;
  // A claim of another worker's lease advances no checkpoint, opens no task and wakes no tick.
  if (!isHeldBySender({stream: undefined, worker}, request)) {
    const claimed = await streamRecords.get(deps.store, run, stream);
    if (!isHeldBySender({stream: claimed, worker}, request))
      return {answer: answerWithoutLease(claimed, request)};
  }
  const {waiting} = await advanceAndKeep(deps, run, stream);
  let parent: Run | undefined;
  const decision = await transact(deps, async (tx, now) => {
    const state = {...(await readRelease(deps, tx, request)), waiting};
    parent = state.run;
    return decideRelease(state, request, deps.config.model_retry, now);
  });
  const object = request.failure?.contradiction?.object;
  if (object !== undefined && decision.writes?.stream) await reportObject(deps.bus, {run, stream}, object);
  if (decision.writes?.breaker?.after.status === 'failed') await updateTotals(deps, run);
  const isUsual = request.outcome === 'completed' || request.outcome === 'preempted';
  if (isUsual && isLarge(parent) && (await needsNoTick(deps, parent))) return {...decision, wakes: false};
  return decision;
});

async function readRelease({log}: Deps, tx: Transaction, request: Release): Promise<ReleaseState> {
  const {lease} = request;
  const stream = await streamRecords.get(tx, lease.run, lease.stream);
  const worker = await workerRecords.get(tx, request.worker);
  if (!isHeldBySender({stream, worker}, request)) return {stream, worker};
  return {stream, worker, run: await runRecords.read(log, tx, lease.run)};
}
