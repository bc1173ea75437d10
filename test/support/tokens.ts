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
export const WRONG_CLAIMS: Forgery[] = [
  {name: 'expired', status: 401, token: (claims, signed) => signed({...claims, exp: now_s() - 61})},
  {name: 'without an expiry', status: 401, token: (claims, signed) => signed({...claims, exp: undefined})},
  {name: 'of the future', status: 401, token: (claims, signed) => signed({...claims, iat: now_s() + 120})},
  {
    name: 'for another audience',
    status: 401,
    token: (claims, signed) => signed({...claims, aud: 'https://x/'}),
  },
  {
    name: 'for a list of audiences',
    status: 401,
    token: (claims, signed) => signed({...claims, aud: [claims.aud]}),
  },
  {name: 'of another issuer', status: 401, token: (claims, signed) => signed({...claims, iss: 'https://x/'})},
  {
    name: 'of an unverified address',
    status: 401,
    token: (claims, signed) => signed({...claims, email_verified: false}),
  },
  {
    name: 'of another account',
    status: 403,
    token: (claims, signed) => signed({...claims, email: `x${claims.email}`}),
  },
];

/** Tokens with right claims and a wrong signature. */
export const WRONG_SIGNATURES: Forgery[] = [
  {
    name: 'without an algorithm',
    status: 401,
    token: (claims, signed) => resigned(signed(claims), {alg: 'none'}, () => ''),
  },
  {
    name: 'with the algorithm none and some signature',
    status: 401,
    token: (claims, signed) => resigned(signed(claims), {alg: 'none'}, () => 'AAAA'),
  },
  {
    name: 'signed HS256 with the name of the key',
    status: 401,
    token: (claims, signed) =>
      resigned(signed(claims), {alg: 'HS256'}, text =>
        createHmac('sha256', 'kid').update(text).digest('base64url'),
      ),
  },
  {
    name: 'signed with another key',
    status: 401,
    token: (claims, signed) =>
      resigned(signed(claims), {}, text => sign('sha256', Buffer.from(text), otherKey).toString('base64url')),
  },
  {
    name: 'signed with a key that has no certificate',
    status: 401,
    token: (claims, signed) =>
      resigned(signed(claims), {kid: 'x'}, text =>
        sign('sha256', Buffer.from(text), otherKey).toString('base64url'),
      ),
  },
  {
    name: 'with the signature of other claims',
    status: 401,
    token: (claims, signed) => {
      const [, , signature] = signed({...claims, email: 'x'}).split('.');
      return resigned(signed(claims), {}, () => String(signature));
    },
  },
  {name: 'without its signature', status: 401, token: (claims, signed) => withoutSignature(signed(claims))},
  {
    name: 'of two parts',
    status: 401,
    token: (claims, signed) => signed(claims).split('.').slice(0, 2).join('.'),
  },
  {name: 'of nonsense', status: 401, token: () => 'aaaa.bbbb.cccc'},
];
