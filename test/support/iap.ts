/** Headers as Identity-Aware Proxy signs them, and each kind that the pages must refuse. */
import {createHmac, generateKeyPairSync, type KeyObject, sign} from 'node:crypto';
import {type Claims, encoded} from './tokens.ts';

export const AUDIENCE = '/projects/123456789012/locations/us-central1/services/gleaner-dashboard';

const KEY_ID = 'key-1';
const curve = () => generateKeyPairSync('ec', {namedCurve: 'P-256'});
const [own, foreign] = [curve(), curve()];
const rsa = generateKeyPairSync('rsa', {modulusLength: 2048});
const PEM = own.publicKey.export({type: 'spki', format: 'pem'}).toString();

/** The keys that Google publishes, by their id. */
export const IAP_KEYS = {[KEY_ID]: PEM};

const now_s = () => Math.floor(Date.now() / 1000);

export function iapClaims(changes: Claims = {}): Claims {
  const person = {email: 'someone@example.com', sub: 'accounts.google.com:1', hd: 'example.com'};
  const times = {iat: now_s() - 5, exp: now_s() + 595};
  return {...person, ...times, aud: AUDIENCE, iss: 'https://cloud.google.com/iap', ...changes};
}

const ecdsa = (key: KeyObject) => (text: string) =>
  sign('sha256', Buffer.from(text), {key, dsaEncoding: 'ieee-p1363'}).toString('base64url');

function signedBy(signer: (text: string) => string, header: object, claims: Claims): string {
  const text = `${encoded({typ: 'JWT', alg: 'ES256', kid: KEY_ID, ...header})}.${encoded(claims)}`;
  return `${text}.${signer(text)}`;
}

/** The header of a reader whom IAP lets pass. */
export function iapHeader(claims: Claims = iapClaims()): string {
  return signedBy(ecdsa(own.privateKey), {}, claims);
}

const changed = (changes: Claims) => () => iapHeader(iapClaims(changes));
const forged = (signer: (text: string) => string, header: object) => () =>
  signedBy(signer, header, iapClaims());
const hmac = (text: string) => createHmac('sha256', PEM).update(text).digest('base64url');
const withRsa = (text: string) => sign('sha256', Buffer.from(text), rsa.privateKey).toString('base64url');

export const FORGED_HEADERS: {name: string; header: () => string}[] = [
  {name: 'for another service', header: changed({aud: AUDIENCE.replace('gleaner', 'team-b')})},
  {name: 'for a list of audiences', header: changed({aud: [AUDIENCE]})},
  {name: 'of another issuer', header: changed({iss: 'https://accounts.google.com'})},
  {name: 'expired', header: changed({exp: now_s() - 31})},
  {name: 'without an expiry', header: changed({exp: undefined})},
  {name: 'of the future', header: changed({iat: now_s() + 90})},
  {name: 'good for longer than a day', header: changed({exp: now_s() + 90_000})},
  {name: 'signed with another key', header: forged(ecdsa(foreign.privateKey), {})},
  {name: 'signed with a key that IAP does not have', header: forged(ecdsa(foreign.privateKey), {kid: 'x'})},
  {name: 'signed with the key __proto__', header: forged(ecdsa(foreign.privateKey), {kid: '__proto__'})},
  {name: 'signed without the name of a key', header: forged(ecdsa(own.privateKey), {kid: undefined})},
  {name: 'without an algorithm', header: forged(() => 'AAAA', {alg: 'none'})},
  {
    name: 'signed rightly with the algorithm none',
    header: forged(ecdsa(own.privateKey), {alg: 'none'}),
  },
  {name: 'signed HS256 with the public key', header: forged(hmac, {alg: 'HS256'})},
  {name: 'signed RS256', header: forged(withRsa, {alg: 'RS256'})},
  {
    name: 'signed for other claims',
    header: () => {
      const [, , signature] = iapHeader(iapClaims({email: 'x@example.com'})).split('.');
      return `${iapHeader().split('.').slice(0, 2).join('.')}.${signature}`;
    },
  },
  {name: 'of two parts', header: () => iapHeader().split('.').slice(0, 2).join('.')},
  {name: 'nonsense', header: () => 'aaaa.bbbb.cccc'},
];
