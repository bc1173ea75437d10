/** Writes the notifications of a change in the transaction of the change, so no crash between the two loses one. */
import {hash} from 'node:crypto';
import {KEPT_DAYS} from '../../contracts/config.ts';
import {NotUnderstood} from '../../contracts/errors.ts';
import {spendingDocument} from '../../domain/billing/monthly-spending.ts';
import {paths} from '../../domain/names.ts';
import {newsOfMonth, newsOfPool, newsOfRun, newsOfZone} from '../../domain/notices/news.ts';
import {type News, newNotice, noticeDocument, receiverDocument} from '../../domain/notices/notice.ts';
import {iso} from '../../domain/time.ts';
import type {Document, Filter, Now, Store} from '../../ports.ts';
import {recordsOf} from './document-kind.ts';
import {poolRecords, runRecords, zoneRecords} from './documents.ts';
import {watchWrites, withTransactions} from './watched-store.ts';

export const noticeRecords = recordsOf(noticeDocument);
export const receiverRecords = recordsOf(receiverDocument);

/** Notifications that are due. The index of `next_at` orders them too. */
export function dueNotices(now: number): Filter {
  return {field: 'next_at', op: '<=', value: iso(now)};
}

type NewsOf = (path: string, before: Document | undefined, after: Document) => News[];

const spendings = recordsOf(spendingDocument);

const KINDS: {path: RegExp; newsOf: NewsOf}[] = [
  {path: /^runs\/[^/]+$/, newsOf: between(runRecords, newsOfRun)},
  {path: /^pools\/[^/]+$/, newsOf: between(poolRecords, newsOfPool)},
  {path: /^zones\/[^/]+$/, newsOf: between(zoneRecords, newsOfZone)},
  {
    path: new RegExp(`^${paths.spending()}$`),
    newsOf: between(spendings, (before, after) =>
      newsOfMonth(before?.budget_mark ?? null, after.budget_mark),
    ),
  },
];

/** Parses both documents. A document that is not understood is no news, and the mend of one neither. */
function between<T>(
  {parse}: {parse: (path: string, data: Document) => T},
  newsOf: (before: T | undefined, after: T) => News[],
): NewsOf {
  return (path, before, after) => {
    try {
      return newsOf(before && parse(path, before), parse(path, after));
    } catch (error) {
      if (error instanceof NotUnderstood) return [];
      throw error;
    }
  };
}

/** The Store whose transactions write a notification for each change that people are told of. */
export function withNotices(store: Store, now: Now): Store {
  const kindOf = (path: string) => KINDS.find(kind => kind.path.test(path));
  return withTransactions(store, work =>
    store.transaction(inner => {
      const seen = new Map<string, Document | undefined>();
      const watched = watchWrites(inner, (path, data) => {
        const kind = data && kindOf(path);
        if (!kind) return;
        const at = now();
        for (const news of kind.newsOf(path, seen.get(path), data))
          noticeRecords.set(
            inner,
            paths.notice(noticeId(news, at)),
            newNotice(news, at, KEPT_DAYS.events * 86_400_000),
          );
        seen.set(path, data);
      });
      const get = async (path: string) => {
        const data = await inner.get(path);
        if (kindOf(path)) seen.set(path, data);
        return data;
      };
      return work({...watched, get});
    }),
  );
}

/** Ids sort by time. A receiver drops a notification whose id it knows. */
function noticeId({key}: News, at: number): string {
  return `${iso(at).replace(/\D/g, '')}-${hash('sha256', key).slice(0, 12)}`;
}
