import {hash} from 'node:crypto';
import {paths} from '../../domain/names.ts';
import type {Run} from '../../domain/run/run.ts';
import {iso} from '../../domain/time.ts';
import type {Transaction} from '../../ports.ts';
import type {Deps} from './deps.ts';
import {eventRecords, MAX_TEXT} from './history-documents.ts';

export type TimelineEvent = {
  kind: 'run' | 'stream' | 'shard' | 'worker' | 'zone' | 'rejected' | 'control';
  text: string;
  run?: string;
  stream?: string;
  worker?: string;
  /** Of the lease that it is about. */
  epoch?: number;
  /** Of the control message that it is about. */
  message_id?: string;
  object?: string;
};

const KEPT_DAYS = 30;

/**
 * Writes one decision beside the change that it tells of. The id is made from what happened and when, so that a
 * transaction that runs again writes the same document.
 */
export function recordEvent(tx: Transaction, event: TimelineEvent, now: number): void {
  const text = event.text.slice(0, MAX_TEXT).toWellFormed();
  const id = hash('sha256', JSON.stringify([now, event])).slice(0, 20);
  const document = {...event, text, at: iso(now), expire_at: iso(now + KEPT_DAYS * 86_400_000)};
  eventRecords.set(tx, paths.event(id), document);
}

/** Records that a breaker has paused the run, if it has. */
export function recordPause(tx: Transaction, before: Run, {run, status, reason}: Run, now: number): void {
  if (status !== before.status)
    recordEvent(tx, {kind: 'run', run, text: `Run ${run} is ${status}: ${reason}`}, now);
}

/** Of what changes no document. */
export async function recordEventNow(
  {store, now}: Pick<Deps, 'store' | 'now'>,
  event: TimelineEvent,
): Promise<void> {
  const at = now();
  await store.transaction(async tx => recordEvent(tx, event, at));
}

/** Records input that was refused: on the timeline for people, and in the log. */
export async function recordRejection(deps: Deps, event: Omit<TimelineEvent, 'kind'>): Promise<void> {
  deps.log('WARNING', event.text, {object: event.object, run: event.run, stream: event.stream});
  await recordEventNow(deps, {kind: 'rejected', ...event});
}
