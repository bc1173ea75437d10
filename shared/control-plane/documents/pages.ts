import type {CollectionPath, Filter, Query, Store, Stored} from '../../ports/ports.ts';

const PAGE = 500;

/** Reads the documents of a query page by page, `most` documents each. The first page has `first` documents: one is often enough. */
export async function* pagesOf(
  store: Store,
  collection: CollectionPath,
  query: Query = {},
  first = PAGE,
  most = PAGE,
): AsyncGenerator<Stored[]> {
  let after: {after?: string} = {};
  for (let limit = first; ; limit = Math.min(most, PAGE)) {
    const page = await store.query(collection, {...query, ...after, limit});
    yield page;
    const last = page.at(-1);
    if (page.length < limit || !last) return;
    after = {after: last.id};
  }
}

/**
 * Reads documents in the order of a field until `isEnough`: documents that are left alone must not hide the documents behind them. Of equal
 * values at the end of a page, the rest is left out.
 */
export async function* orderedPages(
  store: Store,
  collection: CollectionPath,
  {field, where, limit}: {field: string; where: Filter[]; limit: number},
): AsyncGenerator<Stored[]> {
  for (let behind: Filter[] = []; ; ) {
    const page = await store.query(collection, {where: [...where, ...behind], order_by: {field}, limit});
    yield page;
    const last = page.at(-1)?.data[field];
    if (page.length < limit || last === undefined) return;
    behind = [{field, op: '>', value: last}];
  }
}
