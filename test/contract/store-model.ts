/** The contract of the Store in its simplest form, a Map. Adapters are compared with it. */
import type {Document, Filter, Query, Store, Stored, Value} from '../../shared/ports.ts';

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
    const {where = [], order_by, limit, after} = query;
    const field = order_by?.field;
    const found = [...this.#documents]
      .map(([path, data]) => ({path, id: path.slice(path.lastIndexOf('/') + 1), data}))
      .filter(({path, id}) => path === `${collection}/${id}`)
      .filter(({data}) => where.every(filter => matches(data, filter)))
      .filter(({id}) => after === undefined || compareText(id, after) > 0)
      .filter(({data}) => field === undefined || fieldOf(data, field) !== undefined)
      .sort((a, b) => compareBy(a, b, field) * (order_by?.direction === 'desc' ? -1 : 1));
    return {outcome: 'done', documents: found.slice(0, limit)};
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

function fieldOf(data: Document, field: string): Value | undefined {
  let value: Value | undefined = data;
  for (const name of field.split('.')) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
    value = Object.hasOwn(value, name) ? value[name] : undefined;
  }
  return value;
}

function matches(data: Document, {field, op, value}: Filter): boolean {
  const own = fieldOf(data, field);
  if (own === undefined) return false;
  if (op === 'in') return (value as Value[]).includes(own);
  if (rank(own) !== rank(value)) return false;
  const order = compare(own, value);
  switch (op) {
    case '==':
      return order === 0;
    case '<':
      return order < 0;
    case '<=':
      return order <= 0;
    case '>':
      return order > 0;
    case '>=':
      return order >= 0;
  }
}

function compareBy(a: Stored, b: Stored, field: string | undefined): number {
  const order = field ? compare(fieldOf(a.data, field) ?? null, fieldOf(b.data, field) ?? null) : 0;
  return order || compareText(a.id, b.id);
}

function compare(a: Value, b: Value): number {
  if (rank(a) !== rank(b)) return rank(a) - rank(b);
  if (typeof a === 'string') return compareText(a, String(b));
  return Number(a) - Number(b) || 0;
}

function rank(value: Value): number {
  return value === null ? 0 : 1 + ['boolean', 'number', 'string', 'object'].indexOf(typeof value);
}

/** Compares UTF-8 bytes, which orders by code point. JavaScript's own order differs beyond the basic plane. */
function compareText(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
