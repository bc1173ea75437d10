/** Sends the notifications that are due. Only one delivery of the task works at a time. A crash may send one again, with the same id. */
import {Undelivered} from '../../contracts/errors.ts';
import {noticeBody} from '../../contracts/settings/webhook.ts';
import {paths} from '../../domain/names.ts';
import {
  type Attempt,
  afterFailure,
  afterSent,
  type Due,
  decideDue,
  MANY_FAILURES,
  NOTHING_SENT,
  type Notice,
  type Receiver,
} from '../../domain/notices/notice.ts';
import type {Store, Transaction} from '../../ports/ports.ts';
import type {Log} from '../calls/log.ts';
import type {Deps} from '../deps.ts';
import {skipIfInvalid} from '../documents/document-kind.ts';
import {dueNotices, noticeRecords, receiverRecords} from '../documents/notices.ts';

const PAGE = 50;

type DueNotice = {id: string; notice: Notice};

/** Sends a page, the oldest first. If a receiver does not answer, it gets no more notifications of the page. */
export async function sendNotices(
  deps: Deps,
  until_ms: number,
): Promise<{cursor: unknown} | {result: string}> {
  const {store, log, now} = deps;
  if (!deps.webhook) return {result: 'refused: GLEANER_NOTIFY_URL is not set'};
  const query = {where: [dueNotices(now())], order_by: {field: 'next_at'}, limit: PAGE};
  const page: DueNotice[] = [];
  for (const {path, id, data} of await store.query('notices', query)) {
    const notice = await skipIfInvalid(log, async () => noticeRecords.parse(path, data));
    if (notice) page.push({id, notice});
  }
  const notices = page.map(({notice}) => notice);
  for (const due of page.toSorted((one, other) => (one.id < other.id ? -1 : 1))) {
    if (now() >= until_ms) return {cursor: ''};
    const error = await treat(deps, due, notices);
    if (error && !error.refused) return {result: error.message};
  }
  return page.length < PAGE ? {result: 'the notifications are sent'} : {cursor: ''};
}

/** Sends one notification, or stores why it was not sent. Returns the error of the receiver. */
async function treat(deps: Deps, {id, notice}: DueNotice, others: Notice[]) {
  const receiver = await receiverOf(deps.log, deps.store);
  const due = decideDue(notice, others, receiver, deps.now());
  if (due.kind !== 'send') return storeUnsent(deps, id, due);
  const {config, webhook} = deps;
  const body = noticeBody(config.notify?.format ?? 'json', id, notice, config);
  try {
    await webhook?.post(id, body);
  } catch (error) {
    if (!(error instanceof Undelivered)) throw error;
    await storeAttempt(deps, id, (...before) => afterFailure(...before, error.message));
    const isAlert = receiver.failures + 1 >= MANY_FAILURES;
    const text = `A notification is not delivered: ${error.message}`;
    deps.log('WARNING', text, isAlert ? {signal: 'notices-failing'} : {});
    return error;
  }
  await storeAttempt(deps, id, afterSent);
}

/** A document that is not understood is not changed; only the last minutes are forgotten. */
async function receiverOf(log: Log, from: Store | Transaction): Promise<Receiver> {
  const known = await skipIfInvalid(log, () => receiverRecords.get(from, paths.receiver()));
  return known ?? NOTHING_SENT;
}

async function storeUnsent({store}: Deps, id: string, due: Exclude<Due, {kind: 'send'}>): Promise<undefined> {
  await store.transaction(async tx => {
    const notice = await noticeRecords.get(tx, paths.notice(id));
    if (!notice || notice.next_at === null) return;
    const next = due.kind === 'waits' ? {next_at: due.next_at} : {outcome: 'merged' as const, next_at: null};
    noticeRecords.set(tx, paths.notice(id), {...notice, ...next});
  });
}

async function storeAttempt(
  {store, log, now}: Deps,
  id: string,
  after: (notice: Notice, receiver: Receiver, now: number) => Attempt,
): Promise<void> {
  await store.transaction(async tx => {
    const notice = await noticeRecords.get(tx, paths.notice(id));
    const receiver = await receiverOf(log, tx);
    if (!notice) return;
    const next = after(notice, receiver, now());
    noticeRecords.set(tx, paths.notice(id), next.notice);
    receiverRecords.set(tx, paths.receiver(), next.receiver);
  });
}
