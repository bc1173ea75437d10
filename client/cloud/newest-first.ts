import type {Filter, Store, Stored} from '../../shared/ports/ports.ts';

const PAGE = 300;
/** Documents that a search for the newest reads, at most. */
const MOST_READ = 30_000;

/**
 * Documents of a collection, the newest first, page by page. A document without the field is left out. The caller filters: a filter on a
 * second field would need an index of its own.
 */
export async function* newestFirst(
  store: Store,
  collection: string,
  field: string,
  most_read = MOST_READ,
): AsyncGenerator<Stored[]> {
  const seen = new Set<string>();
  let where: Filter[] = [];
  while (seen.size < most_read) {
    const page = await store.query(collection, {where, order_by: {field, direction: 'desc'}, limit: PAGE});
    const fresh = page.filter(({id}) => !seen.has(id));
    for (const {id} of fresh) seen.add(id);
    yield fresh;
    const last = page.at(-1)?.data[field];
    if (page.length < PAGE || fresh.length === 0 || last === undefined) return;
    // Several documents may have the time of the last one.
    where = [{field, op: '<=', value: last}];
  }
}
