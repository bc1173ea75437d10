/** Notifications: changes that a webhook reports to people. A notification is written together with the change that it reports. */
import {z} from 'zod';
import {count, describing, emptyOf, instant, orNull, stored, text} from '../fields.ts';
import {iso, msOf} from '../time.ts';

export const NOTICE_TYPES = [
  ...(['run.completed', 'run.failed', 'run.paused', 'run.budget'] as const),
  ...(['pool.budget', 'month.budget', 'zone.silent'] as const),
] as const;
export type NoticeType = (typeof NOTICE_TYPES)[number];

/** A number, a word or null, for the receiver. */
const fact = z.string().or(z.number()).or(z.null());

export const noticeDocument = stored({
  type: describing(NOTICE_TYPES).describe('Kind of the change.'),
  key: text.describe(
    'Type and subject. Of several notifications with one key within ten minutes, only the last is sent.',
  ),
  text: text.describe('The change as a sentence.'),
  reason: orNull(text).describe('Its reason; null without one.'),
  facts: z.record(text, fact).describe('Names, counts and dollars for the receiver.'),
  outcome: describing(['pending', 'sent', 'merged', 'failed']).describe(
    '`pending` until its delivery, then `sent`; `merged` into a later one of its key; `failed` after a day of failures.',
  ),
  tries: count.describe('Tries to deliver it.'),
  next_at: orNull(instant).describe('Time of the next try; null after the last.'),
  error: orNull(text).describe('Error of the last try; null without one.'),
  at: instant.describe('Time of the change.'),
  expire_at: instant.describe('Firestore deletes the document some time after this: 30 days later.'),
});
export type Notice = z.infer<typeof noticeDocument>;

export type News = Pick<Notice, 'type' | 'key' | 'text' | 'reason' | 'facts'>;

export const receiverDocument = stored({
  sent_at: orNull(instant).describe('Time of the last notification that it accepted; null before the first.'),
  failures: count.describe('Tries in a row that failed.'),
  failing_since_at: orNull(instant).describe('Time of the first of them; else null.'),
  error: orNull(text).describe('Error of the last of them; else null.'),
  recent: z
    .record(text, instant)
    .describe('Times at which the notifications of the last ten minutes were sent, by their key.'),
});
export type Receiver = z.infer<typeof receiverDocument>;
export const NOTHING_SENT = emptyOf(receiverDocument.shape);

/** Of several notifications with one key within this time, only the last is sent. A flapping state is reported at once, then once per interval. */
const QUIET_S = 600;
const RETRY = {first_s: 60, longest_s: 3600};
/** A notification that could not be delivered for this long is dropped. */
const MOST_S = 86_400;
/** Failures in a row after which an alert about the receiver is raised. */
export const MANY_FAILURES = 3;

export function newNotice(news: News, now: number, kept_ms: number): Notice {
  const fresh = {outcome: 'pending', tries: 0, error: null} as const;
  return {...news, ...fresh, next_at: iso(now), at: iso(now), expire_at: iso(now + kept_ms)};
}

/** The decision about a notification that is due: send it, wait, or drop it because a later one with its key reports the same. */
export type Due = {kind: 'send'} | {kind: 'waits'; next_at: string} | {kind: 'folded'};

export function decideDue(notice: Notice, others: readonly Notice[], {recent}: Receiver, now: number): Due {
  if (others.some(other => other.key === notice.key && other.at > notice.at)) return {kind: 'folded'};
  const sent_at = recent[notice.key];
  const quiet_until = sent_at === undefined ? now : msOf(sent_at) + QUIET_S * 1000;
  return quiet_until > now ? {kind: 'waits', next_at: iso(quiet_until)} : {kind: 'send'};
}

export type Attempt = {notice: Notice; receiver: Receiver};

export function afterSent(notice: Notice, receiver: Receiver, now: number): Attempt {
  const isRecent = ([, at]: [string, string]) => now - msOf(at) < QUIET_S * 1000;
  const recent = Object.fromEntries(Object.entries(receiver.recent).filter(isRecent));
  return {
    notice: {...notice, outcome: 'sent' as const, next_at: null, error: null, tries: notice.tries + 1},
    receiver: {
      ...receiver,
      ...{sent_at: iso(now), failures: 0, failing_since_at: null, error: null},
      recent: {...recent, [notice.key]: iso(now)},
    },
  };
}

/** After each failure the wait doubles. After a day the notification is dropped. */
export function afterFailure(notice: Notice, receiver: Receiver, now: number, error: string): Attempt {
  const tries = notice.tries + 1;
  const wait_s = Math.min(RETRY.longest_s, RETRY.first_s * 2 ** Math.min(notice.tries, 10));
  const isLost = now - msOf(notice.at) > MOST_S * 1000;
  const next_at = isLost ? null : iso(now + wait_s * 1000);
  return {
    notice: {...notice, outcome: isLost ? 'failed' : 'pending', next_at, tries, error},
    receiver: {
      ...receiver,
      failures: receiver.failures + 1,
      failing_since_at: receiver.failing_since_at ?? iso(now),
      error,
    },
  };
}
