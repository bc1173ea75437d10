/** Writes the notifications of a change in the same transaction, so that no crash can lose one. */
import {hash} from 'node:crypto';
import {KEPT_DAYS} from '../../contracts/settings/config.ts';
import {paths} from '../../domain/names.ts';
import {type News, newNotice, noticeDocument, receiverDocument} from '../../domain/notices/notice.ts';
import {iso} from '../../domain/time.ts';
import type {Filter, Now, Store} from '../../ports/ports.ts';
import {onNews, recordsOf} from './document-kind.ts';
import {withTransactions} from './watched-store.ts';

export const noticeRecords = recordsOf(noticeDocument);
export const receiverRecords = recordsOf(receiverDocument);

/** Notifications that are due. The index of `next_at` orders them too. */
export function dueNotices(now: number): Filter {
  return {field: 'next_at', op: '<=', value: iso(now)};
}

/** The Store whose transactions write a notification for each change of which people are notified. */
export function withNotices(store: Store, now: Now): Store {
  return withTransactions(store, work =>
    store.transaction(tx => {
      onNews(tx, news => {
        const at = now();
        const notice = newNotice(news, at, KEPT_DAYS.events * 86_400_000);
        noticeRecords.set(tx, paths.notice(noticeId(news, at)), notice);
      });
      return work(tx);
    }),
  );
}

/** Ids sort by time. A receiver drops a notification whose id it knows already. */
function noticeId({key}: News, at: number): string {
  return `${iso(at).replace(/\D/g, '')}-${hash('sha256', key).slice(0, 12)}`;
}
