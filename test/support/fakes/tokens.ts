/** Identity tokens that a caller may send: a valid one, and each kind that worker-api must refuse. */
import {createHmac, generateKeyPairSync, sign} from 'node:crypto';

export type Claims = {[claim: string]: unknown};
export type Forgery = {name: string; status: 401 | 403; token: (claims: Claims, signed: Sign) => string};
/** Signs claims with the key of the issuer. */
export type Sign = (claims: Claims) => string;

const {privateKey: otherKey} = generateKeyPairSync('rsa', {modulusLength: 2048});

/** Claims of an account, in Google's format. */
export function claimsOf(email: string, audience: string, now_s = Math.floor(Date.now() / 1000)): Claims {
  const [iat, exp] = [now_s - 10, now_s + 3500];
  return {
    aud: audience,
    azp: '1',
    email,
    email_verified: true,
    exp,
    iat,
    iss: 'https://accounts.google.com',
    sub: '1',
  };
}

export function encoded(part: object): string {
  return Buffer.from(JSON.stringify(part)).toString('base64url');
}

/** The token with another header and another third part, which `signed` makes of its text. */
function resigned(token: string, changes: object, signed: (text: string) => string): string {
  const [header = '', payload = ''] = token.split('.');
  const text = `${encoded({...JSON.parse(Buffer.from(header, 'base64url').toString()), ...changes})}.${payload}`;
  return `${text}.${signed(text)}`;
}

export function withoutSignature(token: string): string {
  return resigned(token, {}, () => 'SIGNATURE_REMOVED_BY_GOOGLE');
}

const now_s = () => Math.floor(Date.now() / 1000);

/** Tokens whose claims are wrong. */
const CHANGES: {name: string; status?: Forgery['status']; change: (claims: Claims) => Claims}[] = [
  {name: 'expired', change: () => ({exp: now_s() - 61})},
  {name: 'without an expiry', change: () => ({exp: undefined})},
  {name: 'of the future', change: () => ({iat: now_s() + 120})},
  {name: 'for another audience', change: () => ({aud: 'https://x/'})},
  {name: 'for a list of audiences', change: ({aud}) => ({aud: [aud]})},
  {name: 'of another issuer', change: () => ({iss: 'https://x/'})},
  {name: 'of an unverified address', change: () => ({email_verified: false})},
  {name: 'of another account', status: 403, change: ({email}) => ({email: `x${email}`})},
];
export const WRONG_CLAIMS = CHANGES.map(
  ({name, status = 401, change}): Forgery => ({
    name,
    status,
    token: (claims, signed) => signed({...claims, ...change(claims)}),
  }),
);

const byOtherKey = (text: string) => sign('sha256', Buffer.from(text), otherKey).toString('base64url');
const byName = (text: string) => createHmac('sha256', 'kid').update(text).digest('base64url');
const signatureOf = (token: string) => token.split('.')[2] ?? '';

/** Tokens with right claims and a wrong signature, made of a valid token. */
const FORGERIES: {name: string; forge: (token: string, claims: Claims, signed: Sign) => string}[] = [
  {name: 'without an algorithm', forge: token => resigned(token, {alg: 'none'}, () => '')},
  {
    name: 'with the algorithm none and some signature',
    forge: token => resigned(token, {alg: 'none'}, () => 'AAAA'),
  },
  {name: 'signed HS256 with the name of the key', forge: token => resigned(token, {alg: 'HS256'}, byName)},
  {name: 'signed with another key', forge: token => resigned(token, {}, byOtherKey)},
  {
    name: 'signed with a key that has no certificate',
    forge: token => resigned(token, {kid: 'x'}, byOtherKey),
  },
  {
    name: 'with the signature of other claims',
    forge: (token, claims, signed) => resigned(token, {}, () => signatureOf(signed({...claims, email: 'x'}))),
  },
  {name: 'without its signature', forge: withoutSignature},
  {name: 'of two parts', forge: token => token.split('.').slice(0, 2).join('.')},
  {name: 'of nonsense', forge: () => 'aaaa.bbbb.cccc'},
];
export const WRONG_SIGNATURES = FORGERIES.map(
  ({name, forge}): Forgery => ({
    name,
    status: 401,
    token: (claims, signed) => forge(signed(claims), claims, signed),
  }),
);
