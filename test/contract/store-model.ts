/** The contract of the Store in its simplest form, a Map. Adapters are compared with it. */
import type {Document, Query, Store} from '../../shared/ports/ports.ts';
import {compareText, select} from '../world/memory-query.ts';

export type Operation =
  | {kind: 'create' | 'set'; path: string; data: Document}
  | {kind: 'delete'; path: string};
export type Step =
  | {step: 'transaction'; reads: string[]; operations: Operation[]; fails: boolean}
  | {step: 'query'; collection: string; query: Query};

/** Outcome of a step for its caller. */
export type Seen = {outcome: string; documents: unknown};

export class ModelStore {
  #documents = new Map<string, Document>();

  run(step: Step): Seen {
    return step.step === 'query' ? this.#query(step) : this.#transaction(step);
  }

  #transaction({reads, operations, fails}: Step & {step: 'transaction'}): Seen {
    const documents = reads.map(path => this.#documents.get(path));
    const next = new Map(this.#documents);
    const written = new Set<string>();
    let taken = false;
    for (const operation of operations) {
      const {kind, path} = operation;
      // A document of this very transaction fails the call. An older document fails the commit, if there is one.
      if (kind === 'create' && written.has(path)) return {outcome: 'AlreadyExists', documents};
      if (kind === 'create' && next.has(path)) taken = true;
      if (kind === 'delete') {
        next.delete(path);
        written.delete(path);
      } else {
        next.set(path, JSON.parse(JSON.stringify(operation.data)));
        written.add(path);
      }
    }
    if (fails) return {outcome: 'Oops', documents};
    if (taken) return {outcome: 'AlreadyExists', documents};
    this.#documents = next;
    return {outcome: 'done', documents};
  }

  #query({collection, query}: Step & {step: 'query'}): Seen {
    const stored = [...this.#documents]
      .map(([path, data]) => ({path, id: path.slice(path.lastIndexOf('/') + 1), data}))
      .filter(({path, id}) => path === `${collection}/${id}`)
      .sort((a, b) => compareText(a.id, b.id));
    return {outcome: 'done', documents: select(stored, query)};
  }
}

export async function runOn(store: Store, step: Step): Promise<Seen> {
  if (step.step === 'query')
    return {outcome: 'done', documents: await store.query(step.collection, step.query)};
  let documents: (Document | undefined)[] = [];
  const outcome = await store
    .transaction(async tx => {
      documents = [];
      for (const path of step.reads) documents.push(await tx.get(path));
      for (const operation of step.operations)
        if (operation.kind === 'delete') tx.delete(operation.path);
        else tx[operation.kind](operation.path, operation.data);
      if (step.fails) throw Object.assign(new Error('work failed'), {name: 'Oops'});
      return 'done';
    })
    .catch((error: Error) => error.name);
  return {outcome, documents};
}
