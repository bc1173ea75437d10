import type {CollectionPath, Query, Store, Stored} from '../../ports.ts';

const PAGE = 500;

/** Reads the documents of a query page by page. The first page has `first` documents: one is often enough. */
export async function* pagesOf(
  store: Store,
  collection: CollectionPath,
  query: Query = {},
  first = PAGE,
): AsyncGenerator<Stored[]> {
  let after: {after?: string} = {};
  for (let limit = first; ; limit = PAGE) {
    const page = await store.query(collection, {...query, ...after, limit});
    yield page;
    const last = page.at(-1);
    if (page.length < limit || !last) return;
    after = {after: last.id};
  }
}
