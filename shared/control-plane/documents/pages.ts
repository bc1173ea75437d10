import type {CollectionPath, Filter, Query, Store, Stored} from '../../ports/ports.ts';

const PAGE = 500;

/** Reads the documents of a query page by page, `most` at a time. The first page has `first`, because one document is often enough. */
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
 * Reads documents in the order of a field until `isEnough`, so that invalid documents cannot hide those behind them. If a page ends among
 * equal values, the remaining ones are left out.
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
