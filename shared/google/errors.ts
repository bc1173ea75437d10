/**
 * The meaning of Google's errors by their codes; known-errors.ts has it by their texts, which comes first.
 * gRPC clients give canonical codes (0 to 16), HTTP clients statuses, sockets names. All become canonical codes.
 */

import {TpuError} from '../contracts/errors.ts';
import type {Refusal} from '../domain/worker/provider-states.ts';
import {type Kind, knownError, SIGN_IN} from './known-errors.ts';

const CANCELLED = 1;
const UNKNOWN = 2;
const INVALID_ARGUMENT = 3;
const DEADLINE_EXCEEDED = 4;
const NOT_FOUND = 5;
const ALREADY_EXISTS = 6;
const PERMISSION_DENIED = 7;
const RESOURCE_EXHAUSTED = 8;
const FAILED_PRECONDITION = 9;
const ABORTED = 10;
const OUT_OF_RANGE = 11;
const UNIMPLEMENTED = 12;
const INTERNAL = 13;
const UNAVAILABLE = 14;
const UNAUTHENTICATED = 16;

const CODE_OF_STATUS: Record<number, number> = {
  400: INVALID_ARGUMENT,
  401: UNAUTHENTICATED,
  403: PERMISSION_DENIED,
  404: NOT_FOUND,
  408: DEADLINE_EXCEEDED,
  409: ALREADY_EXISTS,
  412: FAILED_PRECONDITION,
  416: OUT_OF_RANGE,
  429: RESOURCE_EXHAUSTED,
  499: CANCELLED,
  500: INTERNAL,
  501: UNIMPLEMENTED,
  502: UNAVAILABLE,
  503: UNAVAILABLE,
  504: DEADLINE_EXCEEDED,
};

function codeOf(error: unknown): number {
  const {code} = (error ?? {}) as {code?: unknown};
  const number = typeof code === 'string' && /^\d+$/.test(code) ? Number(code) : code;
  if (typeof number === 'number') return number > 16 ? (CODE_OF_STATUS[number] ?? UNKNOWN) : number;
  return textKind(`${String(code)} ${messageOf(error)}`) === 'lost' ? UNAVAILABLE : UNKNOWN;
}

function messageOf(error: unknown): string {
  return error instanceof Error
    ? error.message
    : String((error as {message?: unknown} | null)?.message ?? error);
}

const MOST_REASON = 2000;

/** The message in one line, without its full stop and the list of earlier attempts that some clients append. */
export function reasonOf(error: unknown): string {
  const [text = ''] = messageOf(error).split(/\s*: Previous errors/, 1);
  const line = (messageInBody(text) ?? text).replace(/\s+/g, ' ').trim().replace(/\.$/, '');
  // A proxy may answer with a whole page.
  return line.length > MOST_REASON ? `${line.slice(0, MOST_REASON)} …` : line;
}

/** The storage client puts the whole body of a failed download into the message. */
function messageInBody(text: string): string | undefined {
  if (!text.trimStart().startsWith('{')) return undefined;
  try {
    const message = JSON.parse(text).error?.message;
    return typeof message === 'string' ? message : undefined;
  } catch {
    return undefined;
  }
}

/** The reason on one line, and what to do. `otherwise`: what to do if the cause of the reason is unknown. */
export function withAdvice(error: unknown, otherwise?: string): string {
  const reason = reasonOf(error);
  const advice = knownError(reason)?.mend ?? otherwise;
  return advice === undefined ? reason : `${reason}; ${advice}`;
}

const hasCode =
  (...codes: number[]) =>
  (error: unknown) =>
    codes.includes(codeOf(error));

export const isNotFound = hasCode(NOT_FOUND);
export const isBadRequest = hasCode(INVALID_ARGUMENT);
export const isForbidden = hasCode(PERMISSION_DENIED);
export const isAlreadyExists = hasCode(ALREADY_EXISTS);
/** A failed precondition such as `ifGenerationMatch`, or a resource in the wrong state. */
export const isPreconditionFailed = hasCode(FAILED_PRECONDITION);
/** Firestore: other transactions locked or changed a document that this transaction read. */
export const isContention = hasCode(ABORTED);
/** Cloud Storage: the same call may succeed later. True for 408, 429, 500 to 504 except 501, and broken connections. */
export const isRetryable = hasCode(DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE);

/** Cloud Storage answers 404 for a missing object and for a missing bucket; only the missing bucket is our mistake. */
export function isBucketMissing(error: unknown): boolean {
  return isNotFound(error) && knownError(messageOf(error))?.id === 'no-bucket';
}

export function storageReason(error: unknown, bucket: string): string {
  return knownError(messageOf(error))?.id === 'local'
    ? reasonOf(error)
    : withAdvice(error, storageAdvice(error, bucket));
}

function storageAdvice(error: unknown, bucket: string): string | undefined {
  if (isBucketMissing(error)) return `create the bucket ${bucket}, or correct GLEANER_BUCKET`;
  if (codeOf(error) === UNAUTHENTICATED) return SIGN_IN;
  if (isForbidden(error))
    return `grant the account this permission on ${bucket}, or set GLEANER_BUCKET to a bucket of this project`;
  return isRetryable(error) ? 'try again later' : undefined;
}

/**
 * A failed commit may have been committed: after a lost answer the client repeats it,
 * and the database no longer knows the finished transaction.
 */
export function isCommitDoubtful(error: unknown): boolean {
  return isTransient(error) || knownError(messageOf(error))?.id === 'lost-transaction';
}

/** The call may not be made, or not by this account. */
export function isPermission(error: unknown): boolean {
  // Without credentials no call is made, and a forbidden account is reported as a bad request.
  const kind = kindOf(error);
  return (
    ['credentials', 'permission'].includes(kind) ||
    [PERMISSION_DENIED, UNAUTHENTICATED].includes(codeOf(error))
  );
}

export function isTransient(error: unknown): boolean {
  const kind = kindOf(error);
  return kind !== 'credentials' && (KIND_OF_CODE[codeOf(error)] === 'lost' || kind === 'rate');
}

const KIND_OF_CODE: Record<number, Kind> = {
  ...Object.fromEntries(
    [CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, ABORTED, INTERNAL, UNAVAILABLE].map(code => [code, 'lost']),
  ),
  [UNAUTHENTICATED]: 'credentials',
  // Cloud TPU reports a stock-out with this code and few words.
  [RESOURCE_EXHAUSTED]: 'no-capacity',
  // A text that no row knows may mean a quota, a policy, or a role.
  [PERMISSION_DENIED]: 'unknown',
};

const LOOKED_UP: readonly Kind[] = ['bad-request', 'ours', 'policy', 'quota'];

/** What an error means: by its text, and otherwise by its code. */
export function kindOf(error: unknown): Kind {
  const [said, code] = [textKind(messageOf(error)), codeOf(error)];
  const coded = KIND_OF_CODE[code];
  // A service that is down, or a refusal of rights, may name what it could not look up.
  if (said !== undefined && LOOKED_UP.includes(said)) {
    if (coded === 'lost' && code !== UNKNOWN) return coded;
    if (said === 'bad-request' && code === PERMISSION_DENIED) return 'permission';
  }
  return said ?? coded ?? 'bad-request';
}

/** Only in the queue does a text about time mean more than its code. */
function textKind(text: string): Kind | undefined {
  const known = knownError(text);
  return known?.id === 'expired' ? undefined : known?.kind;
}

const REFUSALS: Record<Kind, Refusal> = {
  early: 'permission',
  rate: 'transient',
  'no-capacity': 'no-capacity',
  preempted: 'no-capacity',
  quota: 'quota',
  permission: 'permission',
  credentials: 'permission',
  policy: 'policy',
  'bad-request': 'bad-request',
  ours: 'bad-request',
  lost: 'transient',
  unknown: 'unknown',
};

/** Why a zone gives no node. */
export function tpuFailure(error: unknown): Refusal {
  return REFUSALS[kindOf(error)];
}

/** Why a queued resource FAILED. An expired request is a stock-out, whatever its code. */
export function queuedFailure(error: unknown): Refusal {
  return knownError(messageOf(error))?.id === 'expired' ? 'no-capacity' : tpuFailure(error);
}

const ADVICE: Record<TpuError['kind'], string> = {
  'no-capacity': 'another zone may have some',
  quota: 'ask for more quota, or use another zone or type',
  permission: "grant the functions' service account roles/tpu.admin",
  policy: 'change the setting',
  'bad-request': 'correct the pool',
  unknown: 'this answer is not known: read it whole, and correct the pool or the rights that it names',
  transient: 'try again',
  rate: 'the limit counts the calls of the whole project: try again in a minute',
};

/** `what` is the verb and its subject: 'create tpu-us-east5-b-0'. `quotas`: ids of the quotas that bound the node. */
export function tpuError(what: string, zone: string, error: unknown, quotas: string[] = []): TpuError {
  const kind = kindOf(error) === 'rate' ? 'rate' : tpuFailure(error);
  const ids = kind === 'quota' && quotas.length > 0 ? `; it counts against ${quotas.join(' and ')}` : '';
  return new TpuError(kind, zone, `Failed to ${what} in ${zone}: ${withAdvice(error, ADVICE[kind])}${ids}`, {
    cause: error,
  });
}
