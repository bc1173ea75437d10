/**
 * Limits of documents and paths, the same as those of Firestore (Native mode), so that every adapter accepts the same documents.
 * Sizes follow https://firebase.google.com/docs/firestore/storage-size.
 */

import {InvalidDocument} from '../contracts/errors.ts';
import type {CollectionPath, Document, DocumentPath, Value} from './ports.ts';

const DOCUMENT_BYTES = 1_048_576;
/** Largest value of a field: 1 MiB less 89 bytes, because the index entry must fit too. */
const FIELD_BYTES = 1_048_487;
const NAME_BYTES = 1500;
const PATH_BYTES = 6144;
/** Most field names and list positions on the path to a value. */
const DEPTH = 20;
const INDEX_ENTRIES = 40_000;

export const RESERVED = /^__.*__$/s;
const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
/**
 * Characters that JSON escapes. In Node 24, JSON.parse may confuse an escaped name with another that starts alike
 * (https://github.com/nodejs/node/issues/63785), and would return a different document.
 */
const ESCAPED = /["\\\p{Cc}]/u;

/** True if a field, or the last field of a dotted path, holds an instant. */
export const isInstantField = (field: string) => field.endsWith('_at');

/** True for an instant such as `2026-01-02T03:04:05.678Z` in the years 0001 to 9999, the range of Firestore's timestamps. */
export function isInstant(value: Value): value is string {
  if (typeof value !== 'string' || !INSTANT.test(value) || value.startsWith('0000')) return false;
  const time = Date.parse(value);
  return !Number.isNaN(time) && new Date(time).toISOString() === value;
}

export function splitDocumentPath(path: DocumentPath): {collection: CollectionPath; id: string} {
  const segments = checkPath(path);
  if (segments.length % 2 === 1) throw invalid(path, 'it names a collection; end it with a document id');
  const id = segments.at(-1) ?? '';
  return {collection: path.slice(0, -id.length - 1), id};
}

export function checkCollectionPath(path: CollectionPath): void {
  if (checkPath(path).length % 2 === 0)
    throw invalid(path, 'it names a document; end it with a collection id');
}

function checkPath(path: string): string[] {
  if (typeof path !== 'string') throw invalid(String(path), `a path is a string, not ${kindOf(path)}`);
  const segments = path.split('/');
  for (const segment of segments) {
    const fault =
      segment === '' || segment === '.' || segment === '..'
        ? 'cannot be a segment of a path'
        : nameFault(segment);
    if (fault) throw invalid(brief(path), `${JSON.stringify(brief(segment))} ${fault}`);
  }
  if (nameBytes(path) > PATH_BYTES) throw invalid(brief(path), `the path is longer than ${PATH_BYTES} bytes`);
  return segments;
}

/** Throws `InvalidDocument` unless every adapter can store `data` at `path` and return it unchanged. */
export function checkDocument(path: DocumentPath, data: Document): void {
  splitDocumentPath(path);
  if (!isMap(data)) throw invalid(path, `a document is a map of fields, not ${kindOf(data)}`);
  const count = {indexEntries: 0};
  let bytes = nameBytes(path) + 32;
  for (const [field, value] of Object.entries(data)) {
    const fieldBytes = checkField(path, [], field, value, count);
    if (fieldBytes - stringBytes(field) > FIELD_BYTES)
      throw invalid(
        path,
        `field ${JSON.stringify(brief(field))} takes more than ${FIELD_BYTES} bytes; split it`,
      );
    bytes += fieldBytes;
  }
  if (bytes > DOCUMENT_BYTES)
    throw invalid(path, `it takes ${bytes} bytes and the most is ${DOCUMENT_BYTES}; split it`);
  if (count.indexEntries > INDEX_ENTRIES)
    throw invalid(
      path,
      `it makes ${count.indexEntries} index entries and the most is ${INDEX_ENTRIES}; split it`,
    );
}

type Count = {indexEntries: number};

function checkField(path: DocumentPath, at: string[], field: string, value: unknown, count: Count): number {
  const here = [...at, field];
  const fault = fieldNameFault(field);
  if (fault) throw invalidField(path, here, `its name ${fault}`);
  if (isInstantField(field) && value !== null && !isInstant(value as Value))
    throw invalidField(path, here, `a field …_at holds an instant like 2026-01-02T03:04:05.678Z, or null`);
  const bytes = isInstantField(field) ? 8 : checkValue(path, here, value, count, false);
  if (isInstantField(field)) count.indexEntries += 2;
  return stringBytes(field) + (value === null ? 1 : bytes);
}

function checkValue(path: DocumentPath, at: string[], value: unknown, count: Count, inList: boolean): number {
  if (at.length > DEPTH) throw invalidField(path, at, `it is nested deeper than ${DEPTH} levels`);
  if (Array.isArray(value)) {
    if (inList) throw invalidField(path, at, 'a list cannot hold a list; put a map between them');
    let bytes = 0;
    for (const [index, item] of value.entries()) {
      count.indexEntries += 1;
      bytes += checkValue(path, [...at, String(index)], item, {indexEntries: 0}, true);
    }
    return bytes;
  }
  if (isMap(value)) {
    let bytes = 32;
    for (const [field, item] of Object.entries(value)) bytes += checkField(path, at, field, item, count);
    return bytes;
  }
  count.indexEntries += 2; // one ascending, one descending
  if (value === null || typeof value === 'boolean') return 1;
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw invalidField(path, at, `${value} is not a JSON value`);
    return 8;
  }
  if (typeof value === 'string') {
    if (!value.isWellFormed()) throw invalidField(path, at, 'the text is not valid Unicode');
    return stringBytes(value);
  }
  throw invalidField(path, at, `${kindOf(value)} is not a JSON value`);
}

function fieldNameFault(field: string): string | undefined {
  if (field === '') return 'is empty';
  return ESCAPED.test(field) ? 'holds a quote, a backslash or a control character' : nameFault(field);
}

function nameFault(name: string): string | undefined {
  if (RESERVED.test(name)) return 'is reserved by Firestore (__…__)';
  if (!name.isWellFormed()) return 'is not valid Unicode';
  if (Buffer.byteLength(name) > NAME_BYTES) return `is longer than ${NAME_BYTES} bytes`;
  return undefined;
}

const stringBytes = (text: string) => Buffer.byteLength(text) + 1;
const nameBytes = (path: string) => path.split('/').reduce((sum, segment) => sum + stringBytes(segment), 16);

function isMap(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

function kindOf(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  if (typeof value !== 'object') return `a ${typeof value}`;
  return Array.isArray(value) ? 'a list' : `a ${value.constructor?.name ?? 'foreign object'}`;
}

const brief = (text: string) => (text.length > 80 ? `${text.slice(0, 80)}…` : text);

function invalid(path: string, cause: string): InvalidDocument {
  return new InvalidDocument(`Failed to use ${JSON.stringify(path)}: ${cause}`);
}

function invalidField(path: string, at: string[], cause: string): InvalidDocument {
  return new InvalidDocument(
    `Failed to write ${path}: field ${JSON.stringify(brief(at.join('.')))}: ${cause}`,
  );
}
