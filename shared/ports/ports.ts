/**
 * Ports: the interfaces between the rules and the outside. Every adapter keeps the contract in these comments, and passes the same tests in
 * `test/contract/`. Times are ISO strings in milliseconds, `2026-01-02T03:04:05.678Z`.
 */

import type {Sku} from '../domain/billing/catalog.ts';
import type {Provider} from '../domain/records/providers.ts';
import type {ObjectRights} from '../domain/requests/object-rights.ts';
import type {Tpu} from '../domain/worker/nodes.ts';

export type Value = string | number | boolean | null | Value[] | {[field: string]: Value};
export type Document = {[field: string]: Value};

/** `runs/my-run/streams/007`: collections and documents alternate, an even number of segments, none empty, `.` or `..`. */
export type DocumentPath = string;
/** `runs` or `runs/my-run/streams`: an odd number of segments. */
export type CollectionPath = string;

export type Stored = {path: DocumentPath; id: string; data: Document};

export type Filter = {field: string; op: '==' | '<' | '<=' | '>' | '>=' | 'in'; value: Value};
export type Query = {
  where?: Filter[];
  /** Only documents whose id comes after this one, to page through a collection. Not with `order_by` or ranges. */
  after?: string;
  /** At most one field, because two need a composite index. Default: id order. */
  order_by?: {field: string; direction?: 'asc' | 'desc'};
  limit?: number;
};

/**
 * Documents with transactions, within the limits of Firestore.
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
  /** Sum of each field over the whole collection. Missing values and values that are not numbers add nothing. */
  sum<Field extends string>(
    collection: CollectionPath,
    fields: readonly Field[],
  ): Promise<Record<Field, number>>;
  /**
   * Runs `work`, then commits all of its writes or none, isolated from other transactions. `work` runs again if a document that it read has
   * changed, so it must only read and write through `tx`. All reads come before the first write; a later read throws `ReadAfterWrite`. An
   * error of `work` is rethrown, and nothing is written.
   * * A rejected commit may have written its documents. A caller whose change must happen once creates a marker document in the same
   * transaction, and treats `AlreadyExists` as "done before".
   */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

export interface Transaction {
  get(path: DocumentPath): Promise<Document | undefined>;
  /** Fails the commit with `AlreadyExists` if the document exists. */
  create(path: DocumentPath, data: Document): void;
  /** Replaces the whole document, or creates it. */
  set(path: DocumentPath, data: Document): void;
  /** Does nothing if the document does not exist. */
  delete(path: DocumentPath): void;
}

/**
 * Topics that deliver every message at least once, in any order. A message is durable once `publish` returns. A function receives the message
 * as a CloudEvent whose id is the returned message id. Publishing again sends a second message.
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
  metadata: Record<string, string>;
};

/** How an object is created. */
export type Written = {content_type?: string; metadata?: Record<string, string>};

/** One bucket. Every answer is strongly consistent. */
export interface Objects {
  readonly bucket: string;
  /** Objects in name order. `start`: the first name to include. `limit`: the most objects to return. */
  list(prefix: string, options?: {start?: string; limit?: number}): Promise<ObjectInfo[]>;
  head(name: string): Promise<ObjectInfo | undefined>;
  /** Bytes of the object, or undefined if it does not exist. More than `max_bytes` throws `ObjectTooLarge`. */
  read(name: string, options: {max_bytes: number}): Promise<Uint8Array | undefined>;
  /** Creates the whole object, or returns 'exists' and changes nothing. */
  create(name: string, bytes: Uint8Array, as?: Written): Promise<'created' | 'exists'>;
  /** Overwrites the whole object if it still has this generation; otherwise returns 'changed' and changes nothing. */
  replace(name: string, generation: string, bytes: Uint8Array, as?: Written): Promise<'replaced' | 'changed'>;
  /** Bytes [begin, end) of one generation of the object, or undefined if it no longer exists. */
  readRange(name: string, generation: string, begin: number, end: number): Promise<Uint8Array | undefined>;
  /** Renames this generation of the object, with its metadata. Does nothing if it no longer exists. */
  move(name: string, generation: string, to: string): Promise<void>;
  /** Does nothing if the object does not exist. */
  delete(name: string): Promise<void>;
}

export type {Tpu} from '../domain/worker/nodes.ts';

export type TpuRequest = {
  name: string;
  zone: string;
  provider: Provider;
  accelerator: string;
  /** Software of the node: a runtime version of Cloud TPU, or an image of Compute Engine. */
  runtime_version: string;
  /** Size of the boot disk of an instance. Null: Cloud TPU chooses the disk. */
  disk_gb: number | null;
  spot: boolean;
  labels: Record<string, string>;
  metadata: Record<string, string>;
  /**
   * Null: a node request. Otherwise a queued resource, or a flex-start instance, that is valid until an instant. Requests with the same id (a
   * UUID) are one request.
   */
  queue: {valid_until_at: string; request_id: string} | null;
};

/**
 * TPU nodes of one project, and the queued requests that create them: nodes and queued resources of Cloud TPU, instances of Compute Engine. A
 * queued resource has the name of its node, so one name finds both. `create` and `delete` start an operation and return; a later `list` shows
 * the outcome. Both are safe to repeat: creating an existing name or deleting an absent one is no error. Failures are `TpuError` with a kind,
 * so no caller parses messages.
 */
export interface Tpus {
  /**
   * All nodes of the project, and the unreachable zones. Nodes of an unreachable zone are not listed; they are unknown, not gone. From
   * Compute Engine, only Gleaner's instances are listed.
   */
  list(): Promise<{tpus: Tpu[]; unreachable: string[]}>;
  /** The node, its queued resource or both; undefined if the provider answers that neither exists. Throws if there is no answer. */
  get(name: string, zone: string): Promise<Tpu | undefined>;
  create(request: TpuRequest): Promise<'started' | 'exists'>;
  /**
   * Deletes the queued resource with its node, or the node. `part`: deletes only the queued resource and its node, because another node of
   * that name may have another owner.
   */
  delete(name: string, zone: string, part?: 'queued'): Promise<'started' | 'absent'>;
}

export interface Catalog {
  /** A page of the items of Compute Engine, and the token of the next page; '' is the token of the first page, and follows the last. */
  page(token: string): Promise<{skus: Sku[]; next: string}>;
}

/**
 * The receiver of notifications, whose address the operator has set. Resolves when it has accepted the notification, and throws `Undelivered`
 * otherwise. It recognises a repeated notification by its id.
 */
export interface Webhook {
  post(id: string, body: string): Promise<void>;
}

/** Access token for requests to Cloud Storage, and the time when it expires, at most an hour after its issue. */
export type AccessToken = {access_token: string; expires_at: string};

/** Tokens of the account of this process that carry only some of its rights. */
export interface ObjectTokens {
  /** A token with those of the given rights that the account has itself. Throws `ServiceError`, which never quotes a token. */
  issue(rights: readonly ObjectRights[]): Promise<AccessToken>;
}

/** Secret Manager, with the rights of worker-api. */
export interface Secrets {
  /**
   * The text of `projects/P/secrets/S[/versions/V]`, by default of the newest version, without a line break at its end; or the `problem`, with
   * its remedy, of a secret that a repeated request cannot read either. Throws `ServiceError` where a repeated request may. Neither text quotes
   * a part of a secret. `setting`: the setting of the deployment that names the secret.
   */
  read(name: string, setting: string): Promise<{text: string} | {problem: string}>;
}

export type Now = () => number;
