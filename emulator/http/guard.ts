/** Token of a local cloud: only programs of the user who started the cloud can write to it. */
import {randomBytes} from 'node:crypto';
import type {IncomingHttpHeaders} from 'node:http';
import {join} from 'node:path';
import {setTimeout as sleep} from 'node:timers/promises';
import {isSameText} from '../../shared/contracts/constant-time.ts';
import {bearer, type Caller, EXCHANGE_PATH, signature, tokenAccount} from './access-tokens.ts';
import {ApiError} from './errors.ts';
import type {Handle} from './http.ts';
import {CERTS_PATH, type Identities, roleOf} from './identity.ts';
import {privateFile, readPrivate} from './private-file.ts';
import {splitTokenPath, urlWithToken} from './token-path.ts';

export {urlWithToken};

/** Header with the token for the loopback ports of the functions, which only the cloud calls. */
export const HOST_HEADER = 'x-gleaner-host';
const TOKEN_FILE = 'token';
const TOKEN = /^[0-9a-f]{64}$/;
/** Paths of the JSON API of Cloud Storage. */
const STORAGE = /^\/(?:(?:download|upload|resumable\/upload|batch)\/)?storage\/v1(?:\/|$)|^\/b\//;

/** Token of the local cloud in a folder, created where missing. Its file is private to the user, and a restart keeps it. */
export function tokenIn(dir: string): string {
  return privateFile(tokenFile(dir), TOKEN, () => randomBytes(32).toString('hex'));
}

/** Token in a folder; undefined where the file is not private to this user. */
export function readToken(dir: string): string | undefined {
  const kept = readPrivate(tokenFile(dir));
  return kept !== undefined && TOKEN.test(kept) ? kept : undefined;
}

/** Proof that the server on a port knows the token. A client checks it before sending the token. */
export function proofOf(token: string, nonce: string, port: string): string {
  return signature(`local cloud ${nonce} on port ${port}`, token);
}

/**
 * Token in the push endpoints of Google's Pub/Sub emulator. Every user of the machine can read an endpoint there, so this token only opens
 * the ports of the functions.
 */
export function pushTokenOf(token: string): string {
  return signature('push to the functions', token);
}

export function tokenFile(dir: string): string {
  return join(dir, TOKEN_FILE);
}

/** Secrets and accounts of a cloud. `invokers`: the accounts with the role of an invoker, by the path of the function. */
export type Guard = {
  token: string;
  identify: Identify;
  identities: Identities;
  invokers: (path: string) => string[];
  /** For how many milliseconds the requests of a VM reach no function. */
  cutFor: (vm: string) => number;
  url: () => string;
};

/** Paths that anyone may read: the proof of the cloud, and Google's certificates. They reveal nothing about the cloud. */
const PUBLIC = ['/_local', CERTS_PATH];

/**
 * Requires the token, as Google does: in a header, or in the path of `urlWithToken`. Functions also accept the identity tokens of their
 * invokers, as Cloud Run's IAM does.
 */
export function guarded(guard: Guard, handle: Handle): Handle {
  const {token, identify} = guard;
  return async request => {
    const {token: given, path} = splitTokenPath(request.path);
    const caller =
      given === undefined ? identify(request.headers) : isSameText(given, token) ? 'cloud' : undefined;
    if (caller && caller !== 'cloud' && caller.boundary && !STORAGE.test(path))
      throw new ApiError(403, 'Refused a token with a boundary: it is valid for Cloud Storage only');
    const called = /^\/functions\/[^/]+/.exec(path)?.[0];
    const isPublic = (request.method === 'GET' || request.method === 'HEAD') && PUBLIC.includes(path);
    // The random id of a resumable upload is enough to continue it, as at Google.
    const isResumable = /^(PUT|DELETE) (\/resumable)?\/upload\/storage\/v1\//.test(
      `${request.method} ${path}`,
    );
    const isExchange = request.method === 'POST' && path === EXCHANGE_PATH;
    if (!(caller || isPublic || isResumable || isExchange)) {
      if (called === undefined) throw unauthenticated();
      await passInvoker(guard, bearer(request.headers), called, request.signal);
    }
    const origin = given === undefined ? request.origin : urlWithToken(request.origin, given);
    return handle({...request, path, origin, caller});
  };
}

/** The audience of a token for a function is the address of the function. A request of a VM that is cut off waits. */
async function passInvoker(
  {identities, invokers, url, cutFor}: Guard,
  identity: string,
  called: string,
  signal: AbortSignal,
): Promise<void> {
  const caller = identities.callerOf(identity, `${url()}${called}`);
  if (caller === undefined) throw unauthenticated();
  if (!invokers(called).includes(caller.email))
    throw new ApiError(403, `Refused a call of ${called}: ${caller.email} may not invoke it`);
  const cut_ms = cutFor(caller.vm);
  if (cut_ms > 0) await sleep(cut_ms, undefined, {signal, ref: false});
}

export function unauthenticated(): ApiError {
  return new ApiError(
    401,
    'Refused a request without the token of the local cloud: run `eval "$(npx gleaner local env)"` in this shell, or send the token as Authorization: Bearer',
  );
}

/** The sender of a request with the token of the cloud or the access token of an account. */
export type Identify = (headers: IncomingHttpHeaders) => Caller;

export function identifier(token: string, project: string, deployments: readonly string[]): Identify {
  const callerOf = (given: string): Caller => {
    if (isSameText(given, token)) return 'cloud';
    const account = tokenAccount(given, token);
    return account && {...account, ...roleOf(project, deployments, account.email)};
  };
  // Some of Google's clients only send a key.
  return headers => callerOf(bearer(headers)) ?? callerOf(String(headers['x-goog-api-key'] ?? ''));
}
