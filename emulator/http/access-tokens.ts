/** Access tokens of service accounts: full ones from a metadata server, and narrowed ones from the token service. */

import {createHmac} from 'node:crypto';
import type {IncomingHttpHeaders} from 'node:http';
import {isSameText} from '../../shared/contracts/constant-time.ts';
import type {Boundary} from './boundary.ts';
import {ApiError} from './errors.ts';

/** Account of a token. With a boundary, the token only has those rights of the account that the boundary leaves. */
export type TokenAccount = {email: string; boundary?: Boundary};

/** Service accounts of a deployment: of the VMs, of the event functions, and of worker-api. */
export type Role = 'worker' | 'control' | 'worker-api';

/** An account that a token names. Accounts of no deployment have no role. */
export type Account = TokenAccount & {role?: Role; deployment: string};

/** Sender of a request; undefined if the guard lets the request pass without a token. */
export type Caller = 'cloud' | Account | undefined;

/** Path of the token service, which needs no token in a header: the body of a request has the token that identifies its sender. */
export const EXCHANGE_PATH = '/v1/token';

type Narrowed = {email: string; boundary: Boundary; expires_at_ms: number};

const NARROWED = 'narrowed.';

/** Access token of a service account, as the metadata server of its VM gives it. */
export function accessTokenOf(token: string, email: string): string {
  return `${encoded(email)}.${signature(`access of ${email}`, token)}`;
}

/** Access token with a boundary, as the token service issues it. The text contains its facts, so it survives a restart of the cloud. */
export function narrowedTokenOf(token: string, narrowed: Narrowed): string {
  const facts = encoded(JSON.stringify(narrowed));
  return `${NARROWED}${facts}.${signature(`narrowed ${facts}`, token)}`;
}

/** Account of a token; undefined if the token belongs to no account. Answers 401 to a narrowed token that is forged or expired. */
export function tokenAccount(given: string, token: string, now_ms = Date.now()): TokenAccount | undefined {
  if (given.startsWith(NARROWED)) return narrowedAccount(given.slice(NARROWED.length), token, now_ms);
  const email = Buffer.from(given.split('.')[0] ?? '', 'base64url').toString();
  return isSameText(given, accessTokenOf(token, email)) ? {email} : undefined;
}

function narrowedAccount(given: string, token: string, now_ms: number): TokenAccount {
  const [facts = '', signed = ''] = given.split('.');
  if (!isSameText(signed, signature(`narrowed ${facts}`, token))) throw invalidCredentials();
  const {email, boundary, expires_at_ms}: Narrowed = JSON.parse(Buffer.from(facts, 'base64url').toString());
  if (now_ms >= expires_at_ms) throw invalidCredentials();
  return {email, boundary};
}

export function bearer({authorization = ''}: IncomingHttpHeaders): string {
  return /^Bearer (.+)$/i.exec(authorization)?.[1] ?? '';
}

export function signature(signed: string, token: string): string {
  return createHmac('sha256', token).update(signed).digest('base64url');
}

function encoded(text: string): string {
  return Buffer.from(text).toString('base64url');
}

function invalidCredentials(): ApiError {
  return new ApiError(401, 'Invalid Credentials', {
    headers: {'www-authenticate': 'Bearer error="invalid_token"'},
  });
}
