import {hash} from 'node:crypto';
import {KEPT_DAYS} from '../../contracts/settings/config.ts';
import {paths} from '../../domain/names.ts';
import type {Run} from '../../domain/records/run.ts';
import {iso} from '../../domain/time.ts';
import type {TimelineEvent} from '../../domain/timeline.ts';
import type {Transaction} from '../../ports/ports.ts';
import type {Log} from '../calls/log.ts';
import type {Services} from '../calls/services.ts';
import {eventRecords, MAX_TEXT} from './documents.ts';

/**
 * Records an event in the transaction of the change. The id is a hash of event and time, so a transaction that runs again writes the same
 * document. Equal events with the same `since`, and events with the same `fold`, share one document with the time of the last.
 */
export function recordEvent(tx: Transaction, {fold, ...event}: TimelineEvent, now: number, since = now) {
  const text = event.text.slice(0, MAX_TEXT).toWellFormed();
  const id = hash('sha256', fold ?? JSON.stringify([since, event])).slice(0, 20);
  const document = {...event, text, at: iso(now), expire_at: iso(now + KEPT_DAYS.events * 86_400_000)};
  eventRecords.set(tx, paths.event(id), document);
}

/** Records that a breaker paused or ended the run, and raises an alert. */
export function recordBreak(log: Log, tx: Transaction, before: Run, {run, status, reason}: Run, now: number) {
  if (status === before.status) return;
  const text = `Run ${run} is ${status}: ${reason}`;
  log('ERROR', text, {run, signal: status === 'failed' ? 'run-failed' : 'run-paused'});
  recordEvent(tx, {kind: 'run', run, text}, now);
}

export async function recordEventNow({store, now}: Services, event: TimelineEvent): Promise<void> {
  const at = now();
  await store.transaction(async tx => recordEvent(tx, event, at));
}

export async function recordRejection(deps: Services, event: Omit<TimelineEvent, 'kind'>): Promise<void> {
  deps.log('WARNING', event.text, {object: event.object, run: event.run, stream: event.stream});
  await recordEventNow(deps, {kind: 'rejected', ...event});
}
