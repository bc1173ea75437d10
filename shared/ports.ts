/**
 * The doors between the rules and the world. Every adapter keeps the contract in these comments, and the same
 * tests in `test/contract/` hold each of them to it. Times are ISO strings in milliseconds, `2026-01-02T03:04:05.678Z`.
 */

import type {Tpu} from './domain/worker/nodes.ts';

export type Value = string | number | boolean | null | Value[] | {[field: string]: Value};
export type Document = {[field: string]: Value};

/** `runs/my-run/streams/007`: collections and documents in turn, an even number of segments, none empty, `.` or `..`. */
export type DocumentPath = string;
/** `runs` or `runs/my-run/streams`: an odd number of segments. */
export type CollectionPath = string;

export type Stored = {path: DocumentPath; id: string; data: Document};

export type Filter = {field: string; op: '==' | '<' | '<=' | '>' | '>=' | 'in'; value: Value};
export type Query = {
  where?: Filter[];
  /** Only documents whose id comes after this one; without `order_by` and ranges. Reads a collection a part at a time. */
  after?: string;
  /** One field at most, because two need a composite index. Without it, documents come in id order. */
  order_by?: {field: string; direction?: 'asc' | 'desc'};
  limit?: number;
};

/**
 * Documents with transactions, as Firestore can keep them.
 *
 * - A document holds JSON values only: no `undefined`, no NaN or infinity, no array directly in an array, at most 1 MiB.
 *   A field whose name ends in `_at` is an instant: an ISO string or null here, a timestamp in Firestore.
 *   Anything else throws `InvalidDocument`, naming the path and the field, before anything is written.
 * - A query never matches a document that lacks the field it filters or orders by.
 * - Reads outside a transaction see the newest committed state.
 */
export interface Store {
  get(path: DocumentPath): Promise<Document | undefined>;
  query(collection: CollectionPath, query?: Query): Promise<Stored[]>;
  count(collection: CollectionPath, where?: Filter[]): Promise<number>;
  /** The sum of each field over the whole collection. What is no number, or is missing, adds nothing. */
  sum<Field extends string>(
    collection: CollectionPath,
    fields: readonly Field[],
  ): Promise<Record<Field, number>>;
  /**
   * Runs `work`, then commits its writes all together or not at all, as if nothing else ran meanwhile: when a document that
   * was read has changed, `work` runs again, so it must do nothing but read and write through `tx`. Every read comes before
   * the first write, or `ReadAfterWrite` is thrown. What `work` throws is passed on and nothing is written.
   *
   * A rejected commit does not prove that nothing was written: a caller whose change must happen once creates a marker
   * document beside it and takes `AlreadyExists` for "done before".
   */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

export interface Transaction {
  get(path: DocumentPath): Promise<Document | undefined>;
  /** Fails the commit with `AlreadyExists` when the document is there. */
  create(path: DocumentPath, data: Document): void;
  /** Replaces the whole document, or makes it. */
  set(path: DocumentPath, data: Document): void;
  /** Does nothing when the document is not there. */
  delete(path: DocumentPath): void;
}

/**
 * Topics that deliver every message at least once, in any order. A publish that returned is durable. The message arrives
 * at a function as a CloudEvent whose id is the returned message id; a publisher that repeats itself makes a second message.
 */
export interface Bus {
  publish(topic: string, message: Document): Promise<string>;
}

export type ObjectInfo = {
  name: string;
  /** Decimal string; grows with every overwrite of the name. */
  generation: string;
  size_bytes: number;
  /** Base64 of the big-endian CRC-32C, as Cloud Storage gives it. */
  crc32c: string;
  created_at: string;
  /** Custom metadata. */
  metadata: Record<string, string>;
};

/** One bucket. Every answer is strongly consistent. */
export interface Objects {
  readonly bucket: string;
  /** In name order. `start` is the first name that may come, `limit` is how many come at most. */
  list(prefix: string, options?: {start?: string; limit?: number}): Promise<ObjectInfo[]>;
  head(name: string): Promise<ObjectInfo | undefined>;
  /** The bytes, at most `max_bytes` (larger throws `ObjectTooLarge`), or undefined when there is no such object. */
  read(name: string, options: {max_bytes: number}): Promise<Uint8Array | undefined>;
  /** Creates the object whole, or answers 'exists' and changes nothing. */
  create(
    name: string,
    bytes: Uint8Array,
    options?: {content_type?: string; metadata?: Record<string, string>},
  ): Promise<'created' | 'exists'>;
  /** Overwrites the object whole if it still is this generation, or answers 'changed' and changes nothing. */
  replace(
    name: string,
    generation: string,
    bytes: Uint8Array,
    options?: {content_type?: string; metadata?: Record<string, string>},
  ): Promise<'replaced' | 'changed'>;
  /** Does nothing when there is no such object. */
  delete(name: string): Promise<void>;
}

export type {Tpu} from './domain/worker/nodes.ts';

export type TpuRequest = {
  name: string;
  zone: string;
  accelerator: string;
  runtime_version: string;
  spot: boolean;
  labels: Record<string, string>;
  metadata: Record<string, string>;
  /** Asked for at once; or in the queue, until an instant, under an id (a UUID) that makes a repeated request the same one. */
  queue: {valid_until_at: string; request_id: string} | null;
};

/**
 * Cloud TPU nodes of one project, and the queued resources that they come from. A queued resource has the name of its node, so
 * that one name finds both. `create` and `delete` start the work and return; a later `list` shows how it went.
 * Both are safe to repeat: creating a name that exists and deleting one that does not are no errors.
 * Failures are `TpuError` with a kind, so no caller reads messages.
 */
export interface Tpus {
  /** All of the project, and the zones that gave no answer: what is in such a zone is not listed, and unknown, not gone. */
  list(): Promise<{tpus: Tpu[]; unreachable: string[]}>;
  /** The node, its queued resource or both; undefined when Cloud TPU answers that neither exists. No answer is an error. */
  get(name: string, zone: string): Promise<Tpu | undefined>;
  create(request: TpuRequest): Promise<'started' | 'exists'>;
  /** Whatever has the name there: the queued resource with its node, or the node. */
  delete(name: string, zone: string): Promise<'started' | 'absent'>;
}

/** The job that publishes to topic `tick` every minute. Every verb is safe to repeat. */
export interface Schedule {
  /** Cloud Scheduler's word: ENABLED, PAUSED, DISABLED or UPDATE_FAILED. */
  state(): Promise<string>;
  /** Publishes once, now; also while the job is paused. */
  runNow(): Promise<void>;
  pause(): Promise<void>;
  resume(): Promise<void>;
  close(): Promise<void>;
}

/** Milliseconds since 1970. */
export type Now = () => number;
