import {ApiError} from '../http/errors.ts';
import type {Request} from '../http/http.ts';
import type {JsonObject} from '../http/json.ts';
import {optionalString} from '../http/request-body.ts';
import type {Checksums} from './blobs.ts';

/** Checksums that a client states for its bytes. */
export type ExpectedChecksums = {crc32c?: string; md5?: string};

export function expectedInResource(resource: JsonObject): ExpectedChecksums {
  const crc32c = optionalString(resource.crc32c, 'crc32c');
  const md5 = optionalString(resource.md5Hash, 'md5Hash');
  return {...(crc32c ? {crc32c} : {}), ...(md5 ? {md5} : {})};
}

/** Checksums in the headers `x-goog-hash: crc32c=…,md5=…` and `content-md5`. */
export function expectedInHeaders({headers}: Pick<Request, 'headers'>): ExpectedChecksums {
  const expected: ExpectedChecksums = {};
  const hashes = [headers['x-goog-hash'] ?? ''].flat().join(',').split(',');
  for (const hash of hashes) {
    const [kind, ...value] = hash.trim().split('=');
    if (kind === 'crc32c') expected.crc32c = value.join('=');
    if (kind === 'md5') expected.md5 = value.join('=');
  }
  const md5 = headers['content-md5'];
  if (typeof md5 === 'string') expected.md5 = md5;
  return expected;
}

/** Answers 400 if the checksums of the bytes differ from the expected ones. */
export function requireChecksums(sums: Checksums, expected: ExpectedChecksums): void {
  for (const kind of ['crc32c', 'md5'] as const) {
    if (expected[kind] === undefined || expected[kind] === sums[kind]) continue;
    const word = kind === 'md5' ? 'MD5 hash' : 'CRC32C';
    throw new ApiError(
      400,
      `Provided ${word} "${expected[kind]}" doesn't match calculated ${word} "${sums[kind]}" of the ${sums.size_bytes} bytes that arrived`,
    );
  }
}
