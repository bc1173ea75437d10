/** Every document of the store of a world with run `my-run`. */
import {paths} from '../../../shared/domain/names.ts';
import type {Stored} from '../../../shared/ports/ports.ts';
import type {FunctionWorld} from '../functions.ts';

const COLLECTIONS = [
  ...['control', 'events', 'execs', 'jobs', 'notices', 'pools', 'prices', 'runs', 'system', 'tasks'],
  ...['workers', 'zones', 'runs/my-run/system', paths.streams('my-run')],
];

/** Reads each collection, and those below streams and workers. */
export async function wholeStore({store}: FunctionWorld): Promise<Stored[]> {
  const found: Stored[] = [];
  for (const collection of COLLECTIONS) {
    const documents = await store.query(collection);
    found.push(...documents);
    for (const {path} of documents) {
      if (collection === paths.streams('my-run')) found.push(...(await store.query(`${path}/shards`)));
      if (collection === 'execs') found.push(...(await store.query(`${path}/hosts`)));
      if (collection === 'workers') found.push(...(await store.query(`${path}/attempts`)));
    }
  }
  return found;
}
