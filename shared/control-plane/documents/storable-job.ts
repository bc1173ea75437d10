/** Fits documents of jobs into the limits of the Store. Clients of Firestore store more, and a job grows until its end. */
import {checkDocument, isInstant, isInstantField} from '../../contracts/document-limits.ts';
import {InvalidDocument} from '../../contracts/errors.ts';
import {MAX_RESULT_BYTES} from '../../contracts/job-schemas.ts';
import type {Job} from '../../domain/job/job.ts';
import {MOST_ATTEMPTS, MOST_ERROR_CHARS} from '../../domain/job/lifecycle.ts';
import type {Document, Value} from '../../ports.ts';
import {JOB_FIELDS} from './job-schema.ts';

/** Bytes that a job may gain: its result, its error, and its attempts with their errors. */
const ROOM_BYTES = MAX_RESULT_BYTES + 3 * MOST_ERROR_CHARS + MOST_ATTEMPTS * 4000;

/** Why the Store refuses the document of a new job now or at its end; undefined if it takes the document. */
export function storageProblem(path: string, document: object): string | undefined {
  const why = refusalOf(path, document);
  if (why !== undefined) return why;
  if (refusalOf(path, {...document, result: ' '.repeat(ROOM_BYTES)}) === undefined) return undefined;
  return `the document leaves no room for a result: make it smaller than ${1_048_576 - ROOM_BYTES} bytes, and put long code in a source`;
}

function refusalOf(path: string, document: object): string | undefined {
  try {
    checkDocument(path, document as Document);
    return undefined;
  } catch (error) {
    if (!(error instanceof InvalidDocument)) throw error;
    return `the document cannot be stored: ${error.message}`;
  }
}

/** The document with each field under a name that the Store takes. A name in `_at` without an instant gets a further `_`. */
export function withValidNames(document: Document): Document {
  return Object.fromEntries(Object.entries(document).map(([name, value]) => validField(name, value)));
}

function validField(name: string, value: Value): [string, Value] {
  const plain = name.replace(/["\\\p{Cc}]/gu, '_');
  const isNoInstant = isInstantField(plain) && value !== null && !isInstant(value);
  return [isNoInstant ? `${plain}_` : plain, validValue(value)];
}

function validValue(value: Value): Value {
  if (Array.isArray(value)) return value.map(validValue);
  return typeof value === 'object' && value !== null ? withValidNames(value) : value;
}

/** Fields that a document loses, one after the other, until the Store takes it. */
const LOST: readonly Partial<Job>[] = [{}, {result: null}, {code: null, command: null}, {metadata: {}}];

/**
 * The document in a form that the Store takes. A document with text beyond the limit loses fields: its other fields say why the job
 * has ended.
 */
export function storable(path: string, document: Job): Job {
  let next = withValidNames(document as unknown as Document) as unknown as Job;
  for (const lost of LOST) {
    next = {...next, ...lost};
    if (refusalOf(path, next) === undefined) return next;
  }
  return Object.fromEntries(JOB_FIELDS.map(key => [key, next[key]])) as Job;
}
