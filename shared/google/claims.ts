/** Parts and claims of identity tokens. A token is foreign text until its signature and its claims are checked. */
import {CallerRefused} from '../contracts/errors.ts';
import {printable} from '../contracts/printable.ts';

export type Claims = {[claim: string]: unknown};

/** `setting`: the variable that has the audience. */
export type Wanted = {audience: string; setting: string; issuer: string; most_skew_s: number; now_s: number};

/** Header, claims and signature of a token. Throws `CallerRefused` for another text. */
export function partsOf(token: string): {header: Claims; claims: Claims; signature: string} {
  const [, header = '', claims = '', signature = ''] = /^([\w-]+)\.([\w-]+)\.([\w-]+)$/.exec(token) ?? [];
  return {header: decode(header), claims: decode(claims), signature};
}

function decode(part: string): Claims {
  try {
    const value = JSON.parse(Buffer.from(part, 'base64url').toString('utf8'));
    return typeof value === 'object' && value !== null ? value : {};
  } catch (cause) {
    throw new CallerRefused(401, 'the identity token is not readable', {cause});
  }
}

export function quoted(claim: unknown): string {
  return printable(JSON.stringify(claim) ?? 'nothing').slice(0, 200);
}

export function problemsOf({aud, iss, exp, iat}: Claims, wanted: Wanted): string[] {
  const {audience, setting, issuer, most_skew_s, now_s} = wanted;
  return [
    ...(aud === audience ? [] : [`it is for the audience ${quoted(aud)}, and ${setting} is ${audience}`]),
    ...(iss === issuer ? [] : ['Google has not issued it']),
    ...(typeof exp === 'number' && now_s <= exp + most_skew_s ? [] : ['it has expired']),
    ...(typeof iat === 'number' && iat - most_skew_s <= now_s ? [] : ['it is not valid yet']),
  ];
}
