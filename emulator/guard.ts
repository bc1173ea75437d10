/** Token of a local cloud: only programs of the user who started the cloud can write to it. */
import {createHmac, randomBytes, timingSafeEqual} from 'node:crypto';
import {lstatSync, readFileSync, rmSync, type Stats, writeFileSync} from 'node:fs';
import type {IncomingHttpHeaders} from 'node:http';
import {join} from 'node:path';
import {ApiError} from './errors.ts';
import type {Handle} from './http.ts';
import {splitTokenPath} from './token-path.ts';

export {urlWithToken} from './token-path.ts';

/** Header with the token for the loopback ports of the functions, which only the cloud calls. */
export const HOST_HEADER = 'x-gleaner-host';
const TOKEN_FILE = 'token';
const IDENTITY_S = 3600;

/** Token of the local cloud in a folder, created where missing. Its file is private to the user, and a restart keeps it. */
export function tokenIn(dir: string): string {
  const kept = readToken(dir);
  if (kept !== undefined) return kept;
  const file = tokenFile(dir);
  const token = randomBytes(32).toString('hex');
  rmSync(file, {force: true});
  writeFileSync(file, token, {mode: 0o600, flag: 'wx'});
  return token;
}

/** Token in a folder; undefined where the file is not private to this user. */
export function readToken(dir: string): string | undefined {
  const file = tokenFile(dir);
  const kept = isPrivate(file) ? readFileSync(file, 'utf8') : '';
  return /^[0-9a-f]{64}$/.test(kept) ? kept : undefined;
}

/** Proof that the server on a port knows the token. A client checks the proof before it sends the token. */
export function proofOf(token: string, nonce: string, port: string): string {
  return signature(`local cloud ${nonce} on port ${port}`, token);
}

/**
 * Token in the push endpoints of Google's Pub/Sub emulator. Every user of the machine can read an endpoint there, so this token
 * opens the ports of the functions only.
 */
export function pushTokenOf(token: string): string {
  return signature('push to the functions', token);
}

/** True for a regular file of this user that no other user can read or write. */
function isPrivate(file: string): boolean {
  const stat = statOf(file);
  return stat?.isFile() === true && stat.uid === process.getuid?.() && (stat.mode & 0o077) === 0;
}

/** Status of a file; undefined where the file is missing or its folder belongs to another user. */
function statOf(file: string): Stats | undefined {
  try {
    return lstatSync(file);
  } catch {
    return undefined;
  }
}

export function tokenFile(dir: string): string {
  return join(dir, TOKEN_FILE);
}

/** Requires the token for writes and for calls of functions: in a header, or in the path of `urlWithToken`. Reads are free. */
export function guarded(token: string, handle: Handle): Handle {
  return async request => {
    const {token: given, path} = splitTokenPath(request.path);
    const isTrusted = given === undefined ? hasToken(request.headers, token) : isSame(given, token);
    const isRead = (request.method === 'GET' || request.method === 'HEAD') && !path.startsWith('/functions/');
    // The random id of a resumable upload permits its continuation, as at Google.
    const isResumable = /^(PUT|DELETE) (\/resumable)?\/upload\/storage\/v1\//.test(
      `${request.method} ${path}`,
    );
    const isWorker = path.startsWith('/functions/') && isIdentity(bearer(request.headers), token);
    if (!(isTrusted || isRead || isResumable || isWorker)) throw unauthenticated();
    return handle({...request, path});
  };
}

export function unauthenticated(): ApiError {
  return new ApiError(
    401,
    'Refused a request without the token of the local cloud: run `eval "$(npx gleaner local env)"` in this shell, or send the token as Authorization: Bearer',
  );
}

export function hasToken(headers: IncomingHttpHeaders, token: string): boolean {
  const key = headers['x-goog-api-key'];
  return isSame(bearer(headers), token) || isSame(typeof key === 'string' ? key : '', token);
}

export function isSame(given: string, token: string): boolean {
  const [one, other] = [Buffer.from(given), Buffer.from(token)];
  return one.length === other.length && timingSafeEqual(one, other);
}

function bearer({authorization = ''}: IncomingHttpHeaders): string {
  return /^Bearer (.+)$/i.exec(authorization)?.[1] ?? '';
}

/** Identity token of a VM, in Google's format and signed with the token of the cloud. */
export function identityToken(claims: object, token: string): string {
  const now_s = Math.floor(Date.now() / 1000);
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const times = {iat: now_s, exp: now_s + IDENTITY_S};
  const signed = `${encode({alg: 'HS256', typ: 'JWT'})}.${encode({...claims, ...times})}`;
  return `${signed}.${signature(signed, token)}`;
}

function isIdentity(given: string, token: string): boolean {
  const [header = '', payload = '', mac = ''] = given.split('.');
  if (!isSame(mac, signature(`${header}.${payload}`, token))) return false;
  return JSON.parse(Buffer.from(payload, 'base64url').toString()).exp * 1000 > Date.now();
}

function signature(signed: string, token: string): string {
  return createHmac('sha256', token).update(signed).digest('base64url');
}
