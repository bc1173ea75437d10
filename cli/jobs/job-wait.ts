/** Why jobs wait, as the last tick stored it in the documents of their pools. */
import {poolRecords} from '../../shared/control-plane/documents/documents.ts';
import {waitText} from '../../shared/domain/waiting/constraint.ts';
import type {Document, Store} from '../../shared/ports.ts';

/** The sentence for a waiting job; undefined for any other job, and before a tick has seen it. */
export type WaitOf = (job: Document) => string | undefined;

export async function readWaits(store: Store): Promise<WaitOf> {
  const pools = poolRecords.parseAll(await store.query('pools'), () => {});
  const waits = new Map(
    pools.flatMap(({pool, jobs_wait}) => (jobs_wait ? [[pool, waitText(jobs_wait)]] : [])),
  );
  return ({status, pool, reason}) => {
    if (status !== 'scheduled') return undefined;
    return waits.get(String(pool)) ?? (typeof reason === 'string' ? reason : undefined);
  };
}
