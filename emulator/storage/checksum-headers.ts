import {ApiError} from '../errors.ts';
import type {Request} from '../http.ts';
import type {JsonObject} from '../json.ts';
import {optionalString} from '../request-body.ts';
import type {Checksums} from './blobs.ts';

/** What a client says its bytes sum to. */
export type Claims = {crc32c?: string; md5?: string};

export function claimsIn(resource: JsonObject): Claims {
  const crc32c = optionalString(resource.crc32c, 'crc32c');
  const md5 = optionalString(resource.md5Hash, 'md5Hash');
  return {...(crc32c ? {crc32c} : {}), ...(md5 ? {md5} : {})};
}

/** `x-goog-hash: crc32c=…,md5=…` and `content-md5`. */
export function claimsInHeaders({headers}: Pick<Request, 'headers'>): Claims {
  const claims: Claims = {};
  const hashes = [headers['x-goog-hash'] ?? ''].flat().join(',').split(',');
  for (const hash of hashes) {
    const [kind, ...value] = hash.trim().split('=');
    if (kind === 'crc32c') claims.crc32c = value.join('=');
    if (kind === 'md5') claims.md5 = value.join('=');
  }
  const md5 = headers['content-md5'];
  if (typeof md5 === 'string') claims.md5 = md5;
  return claims;
}

export function requireSums(sums: Checksums, claims: Claims): void {
  for (const kind of ['crc32c', 'md5'] as const) {
    if (claims[kind] === undefined || claims[kind] === sums[kind]) continue;
    const word = kind === 'md5' ? 'MD5 hash' : 'CRC32C';
    throw new ApiError(
      400,
      `Provided ${word} "${claims[kind]}" doesn't match calculated ${word} "${sums[kind]}" of the ${sums.size_bytes} bytes that arrived`,
    );
  }
}
