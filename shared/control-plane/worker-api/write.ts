import type {RequestWrites} from '../../domain/records/request-writes.ts';
import type {Transaction} from '../../ports/ports.ts';
import type {Deps} from '../deps.ts';
import {execHostRecords, runRecords, streamRecords, workerRecords} from '../documents/documents.ts';
import {recordEvent} from '../documents/event-log.ts';
import {jobRecords, storeEnded} from '../documents/job-documents.ts';
import {setBreaker} from '../documents/lease-documents.ts';

export function transact<Decision extends {writes?: RequestWrites}>(
  deps: Deps,
  decide: (tx: Transaction, now: number) => Promise<Decision>,
): Promise<Decision> {
  return deps.store.transaction(async tx => {
    const now = deps.now();
    const decision = await decide(tx, now);
    if (decision.writes) write(deps, tx, decision.writes, now);
    return decision;
  });
}

function write(deps: Deps, tx: Transaction, writes: RequestWrites, now: number): void {
  const {worker, stream, run, breaker, job, endedJob, execHost} = writes;
  if (worker) workerRecords.set(tx, worker);
  for (const member of writes.members ?? []) workerRecords.set(tx, member);
  if (stream) streamRecords.set(tx, stream);
  if (run) runRecords.set(tx, run);
  if (breaker) setBreaker(deps.log, tx, breaker, now);
  if (job) jobRecords.set(deps, tx, job);
  if (endedJob) storeEnded(deps, tx, endedJob.before, endedJob.after, now);
  if (execHost) execHostRecords.set(tx, execHost.exec, execHost.host);
  for (const event of writes.events ?? []) recordEvent(tx, event, now, writes.events_since);
}
