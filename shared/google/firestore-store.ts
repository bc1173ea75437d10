/**
 * The Store in Firestore (Native mode). Transactions are Firestore's own: a read locks the document.
 * After a lost lock the client runs the work again, at most `attempts` times. Five attempts take about 20 seconds.
 * * If the answer of a commit is lost, the client repeats it, and may then fail although everything was written:
 * for example with ALREADY_EXISTS for our own marker. `Store.transaction` says how callers handle that.
 * * FIRESTORE_EMULATOR_HOST points the client at Google's emulator.
 */
import type {
  Firestore,
  Query as FirestoreQuery,
  Transaction as FirestoreTransaction,
} from '@google-cloud/firestore';
import {AlreadyExists, Contention, ServiceError} from '../contracts/errors.ts';
import {Attempt, type Write} from '../ports/checked-transaction.ts';
import {splitDocumentPath} from '../ports/document-limits.ts';
import type {
  CollectionPath,
  Document,
  DocumentPath,
  Filter,
  Query,
  Store,
  Stored,
  Transaction,
} from '../ports/ports.ts';
import {checkQuery, checkSum, rangeField} from '../ports/query-limits.ts';
import {isAlreadyExists, isCommitDoubtful, isContention, isPermission, withAdvice} from './errors.ts';
import {fieldToFirestore, fromFirestore, toFirestore} from './firestore-values.ts';
import {memoizeAsync} from './memoize-async.ts';

type FirestoreOptions =
  | {project: string; database?: string; attempts?: number}
  | {client: Firestore; attempts?: number};
type Loaded = {firestore: Firestore; module: typeof import('@google-cloud/firestore')};

/** Loads and connects at the first call. Closing the store also closes a client that was passed in. */
export function openFirestoreStore(options: FirestoreOptions): Store {
  return new FirestoreStore(options);
}

class FirestoreStore implements Store {
  readonly #load: () => Promise<Loaded>;
  readonly #attempts: number;
  #loaded: Firestore | undefined;

  constructor(options: FirestoreOptions) {
    this.#attempts = options.attempts ?? 5;
    this.#load = memoizeAsync(async () => {
      const {default: module} = await import('@google-cloud/firestore');
      this.#loaded ??= connect(options, module);
      return {firestore: this.#loaded, module};
    });
  }

  async get(path: DocumentPath): Promise<Document | undefined> {
    splitDocumentPath(path);
    const {firestore} = await this.#load();
    const data = (await firestore.doc(path).get().catch(readFailed(path))).data();
    return data && fromFirestore(data);
  }

  async query(collection: CollectionPath, query: Query = {}): Promise<Stored[]> {
    checkQuery(collection, query);
    const {docs} = await select(await this.#load(), collection, query)
      .get()
      .catch(readFailed(collection));
    const stored = docs.map(doc => ({
      path: `${collection}/${doc.id}`,
      id: doc.id,
      data: fromFirestore(doc.data()),
    }));
    // Without an order Firestore sorts by the field of a range; the contract requires order by id.
    return rangeField(query) && !query.order_by ? stored.sort(byId) : stored;
  }

  async count(collection: CollectionPath, where: Filter[] = []): Promise<number> {
    checkQuery(collection, {where});
    const snapshot = await select(await this.#load(), collection, {where})
      .count()
      .get()
      .catch(readFailed(collection));
    return snapshot.data().count;
  }

  /** Sends one query for each field: several fields in one query need a composite index. */
  async sum<Field extends string>(
    collection: CollectionPath,
    fields: readonly Field[],
  ): Promise<Record<Field, number>> {
    checkSum(collection, fields);
    const {firestore, module} = await this.#load();
    const sums = fields.map(async field => {
      const path = new module.FieldPath(...field.split('.'));
      const aggregate = firestore.collection(collection).aggregate({sum: module.AggregateField.sum(path)});
      const snapshot = await aggregate.get().catch(readFailed(collection));
      return [field, snapshot.data().sum] as const;
    });
    return Object.fromEntries(await Promise.all(sums)) as Record<Field, number>;
  }

  async transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const {firestore, module} = await this.#load();
    let created: DocumentPath[] = [];
    const attempt = async (transaction: FirestoreTransaction): Promise<T> => {
      let lost: unknown;
      created = [];
      const read = async (path: DocumentPath): Promise<Document | undefined> => {
        const doc = await transaction.get(firestore.doc(path)).catch(error => {
          lost = error;
          throw error;
        });
        const data = doc.data();
        return data && fromFirestore(data);
      };
      const write = (change: Write): void => {
        const doc = firestore.doc(change.path);
        if (change.kind === 'delete') transaction.delete(doc);
        else transaction[change.kind](doc, toFirestore(change.data, module.Timestamp));
        if (change.kind === 'create') created.push(change.path);
      };
      const outcome = await new Attempt(read, write).run(work).then(
        value => ({value}),
        error => ({failure: new WorkFailed('', {cause: error})}),
      );
      // The client must see a failed read even if the work caught it, because the client decides about another attempt.
      if (lost) throw lost;
      if ('failure' in outcome) throw outcome.failure;
      return outcome.value;
    };
    try {
      return await firestore.runTransaction(attempt, {maxAttempts: this.#attempts});
    } catch (error) {
      throw error instanceof WorkFailed ? error.cause : commitFailure(error, created);
    }
  }

  async close(): Promise<void> {
    await this.#loaded?.terminate();
  }
}

/** Hides the code of an error of the work, because the client repeats the work after some codes. */
class WorkFailed extends Error {}

function connect(options: FirestoreOptions, {Firestore}: Loaded['module']): Firestore {
  if ('client' in options) return options.client;
  return new Firestore({projectId: options.project, databaseId: options.database ?? '(default)'});
}

function select({firestore, module}: Loaded, collection: CollectionPath, query: Query): FirestoreQuery {
  let selected: FirestoreQuery = firestore.collection(collection);
  for (const {field, op, value} of query.where ?? []) {
    const path = new module.FieldPath(...field.split('.'));
    const encode = (one: typeof value): unknown => fieldToFirestore(field, one, module.Timestamp);
    selected = selected.where(
      path,
      op,
      op === 'in' && Array.isArray(value) ? value.map(encode) : encode(value),
    );
  }
  if (query.order_by) {
    const {field, direction} = query.order_by;
    selected = selected.orderBy(new module.FieldPath(...field.split('.')), direction);
  }
  if (query.after !== undefined)
    selected = selected.orderBy(module.FieldPath.documentId()).startAfter(query.after);
  return query.limit === undefined ? selected : selected.limit(query.limit);
}

function byId(a: Stored, b: Stored): number {
  return Buffer.compare(Buffer.from(a.id), Buffer.from(b.id));
}

function saidBy(error: unknown): string {
  return withAdvice(
    error,
    isPermission(error) ? 'grant the calling account roles/datastore.user' : undefined,
  );
}

function readFailed(path: string): (error: unknown) => never {
  return error => {
    throw new ServiceError(`Failed to read ${path} in Firestore: ${saidBy(error)}`, {cause: error});
  };
}

function commitFailure(error: unknown, created: DocumentPath[]): Error {
  const cause = saidBy(error);
  if (isAlreadyExists(error) && created.length > 0)
    return new AlreadyExists(`Failed to create ${created.join(' or ')}: it is already there`, {cause: error});
  if (isContention(error))
    return new Contention(
      `Failed to commit to Firestore: other writers won every attempt; try again later (${cause})`,
      {cause: error},
    );
  const doubt = isCommitDoubtful(error) ? '; the writes may have happened' : '';
  return new ServiceError(`Failed to commit to Firestore: ${cause}${doubt}`, {cause: error});
}
