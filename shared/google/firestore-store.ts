/**
 * The Store in Firestore (Native mode). Transactions are Firestore's own: a read locks the document, and when a lock is lost
 * the client runs the work again, 5 times at most.
 *
 * A commit whose answer is lost is ambiguous: the client sends it again, and may then report ALREADY_EXISTS for a marker of
 * our own making, or any other error, although everything was written. `Store.transaction` says what callers do about it.
 *
 * FIRESTORE_EMULATOR_HOST points the client at Google's emulator.
 */
import type {Firestore, Query as FirestoreQuery, Timestamp} from '@google-cloud/firestore';
import {Attempt, type Write} from '../attempt.ts';
import {checkQuery, isInstantField, rangeField, splitDocumentPath} from '../documents.ts';
import {AlreadyExists, Contention} from '../errors.ts';
import type {
  CollectionPath,
  Document,
  DocumentPath,
  Filter,
  Query,
  Store,
  Stored,
  Transaction,
} from '../ports.ts';
import {isAlreadyExists, isContention} from './errors.ts';
import {fieldToFirestore, fromFirestore, toFirestore} from './firestore-values.ts';
import {lazily} from './lazily.ts';

type Options = {projectId: string; databaseId?: string} | {client: Firestore};
type Loaded = {firestore: Firestore; module: typeof import('@google-cloud/firestore')};

/** Nothing is loaded or connected before the first call. A client that is passed in is closed with the store. */
export function openFirestoreStore(options: Options): Store {
  return new FirestoreStore(options);
}

class FirestoreStore implements Store {
  readonly #load: () => Promise<Loaded>;
  #loaded: Firestore | undefined;

  constructor(options: Options) {
    this.#loaded = 'client' in options ? options.client : undefined;
    this.#load = lazily(async () => {
      const module = await import('@google-cloud/firestore');
      this.#loaded ??= new module.Firestore(options as {projectId: string; databaseId?: string});
      return {firestore: this.#loaded, module};
    });
  }

  async get(path: DocumentPath): Promise<Document | undefined> {
    splitDocumentPath(path);
    const {firestore} = await this.#load();
    const data = (await firestore.doc(path).get()).data();
    return data && fromFirestore(data);
  }

  async query(collection: CollectionPath, query: Query = {}): Promise<Stored[]> {
    checkQuery(collection, query);
    const {docs} = await select(await this.#load(), collection, query).get();
    const stored = docs.map(doc => ({
      path: `${collection}/${doc.id}`,
      id: doc.id,
      data: fromFirestore(doc.data()),
    }));
    // Firestore orders by the field of a range when nothing else is asked for; the contract says by id.
    return rangeField(query) && !query.order_by ? stored.sort(byId) : stored;
  }

  async count(collection: CollectionPath, where: Filter[] = []): Promise<number> {
    checkQuery(collection, {where});
    const snapshot = await select(await this.#load(), collection, {where})
      .count()
      .get();
    return snapshot.data().count;
  }

  async transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const {firestore, module} = await this.#load();
    let outcome: Outcome<T> | undefined;
    let created: DocumentPath[] = [];
    try {
      await firestore.runTransaction(async transaction => {
        let lost: unknown;
        created = [];
        const read = async (path: DocumentPath): Promise<Document | undefined> => {
          try {
            const data = (await transaction.get(firestore.doc(path))).data();
            return data && fromFirestore(data);
          } catch (error) {
            lost = error;
            throw error;
          }
        };
        const write = (change: Write): void => {
          const doc = firestore.doc(change.path);
          if (change.kind === 'delete') transaction.delete(doc);
          else transaction[change.kind](doc, toFirestore(change.data, module.Timestamp));
          if (change.kind === 'create') created.push(change.path);
        };
        outcome = await new Attempt(read, write).run(work).then(
          value => ({value}),
          error => ({error}),
        );
        // Whatever the work made of a failed read, the client has to see it: it decides whether to run the work again.
        if (lost) throw lost;
        if ('error' in outcome) throw new WorkFailed();
      });
    } catch (error) {
      if (error instanceof WorkFailed && outcome && 'error' in outcome) throw outcome.error;
      throw commitFailure(error, created);
    }
    return (outcome as unknown as {value: T}).value;
  }

  async close(): Promise<void> {
    await this.#loaded?.terminate();
  }
}

type Outcome<T> = {value: T} | {error: unknown};

/** Carries no code, so the client takes it for final whatever the work has thrown. */
class WorkFailed extends Error {}

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
  return query.limit === undefined ? selected : selected.limit(query.limit);
}

function byId(a: Stored, b: Stored): number {
  return Buffer.compare(Buffer.from(a.id), Buffer.from(b.id));
}

function commitFailure(error: unknown, created: DocumentPath[]): Error {
  const cause = (error as Error).message;
  if (isAlreadyExists(error) && created.length > 0)
    return new AlreadyExists(`Failed to create ${created.join(' or ')}: it is already there`, {cause: error});
  if (isContention(error))
    return new Contention(
      `Failed to commit to Firestore: other writers won every attempt; try again later (${cause})`,
      {
        cause: error,
      },
    );
  return new Error(`Failed to commit to Firestore: ${cause}; it may have been written all the same`, {
    cause: error,
  });
}
