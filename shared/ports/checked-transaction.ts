import {AlreadyExists, ReadAfterWrite} from '../contracts/errors.ts';
import {checkDocument, splitDocumentPath} from './document-limits.ts';
import type {Document, DocumentPath, Transaction} from './ports.ts';

export type Write =
  | {kind: 'create' | 'set'; path: DocumentPath; data: Document}
  | {kind: 'delete'; path: DocumentPath};

/** One attempt at the work of a transaction. Enforces the rules of `Transaction` that no database enforces. */
export class Attempt implements Transaction {
  readonly #read: (path: DocumentPath) => Promise<Document | undefined>;
  /** Receives each valid write. It must copy `data`, which the caller may change later. */
  readonly #write: (write: Write) => void;
  readonly #written = new Map<DocumentPath, Write['kind']>();
  #over = false;

  constructor(read: (path: DocumentPath) => Promise<Document | undefined>, write: (write: Write) => void) {
    this.#read = read;
    this.#write = write;
  }

  /** Runs `work`. Using the transaction later throws, because it would have no effect. */
  async run<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    try {
      return await work(this);
    } finally {
      this.#over = true;
    }
  }

  async get(path: DocumentPath): Promise<Document | undefined> {
    this.#checkRunning();
    splitDocumentPath(path);
    if (this.#written.size > 0)
      throw new ReadAfterWrite(`Failed to read ${path}: the transaction has written already; read it before`);
    return await this.#read(path);
  }

  create(path: DocumentPath, data: Document): void {
    const before = this.#written.get(path);
    if (before === 'create' || before === 'set')
      throw new AlreadyExists(`Failed to create ${path}: this transaction has written it already`);
    this.#put({kind: 'create', path, data});
  }

  set(path: DocumentPath, data: Document): void {
    this.#put({kind: 'set', path, data});
  }

  delete(path: DocumentPath): void {
    this.#put({kind: 'delete', path});
  }

  #put(write: Write): void {
    this.#checkRunning();
    if (write.kind === 'delete') splitDocumentPath(write.path);
    else checkDocument(write.path, write.data);
    this.#write(write);
    this.#written.set(write.path, write.kind);
  }

  #checkRunning(): void {
    if (this.#over)
      throw new Error('Failed to use a transaction: it is over; await everything inside its work');
  }
}
