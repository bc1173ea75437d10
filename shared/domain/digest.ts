/**
 * The digest of a growing list: SHA-256 over the digest of the earlier entries and the line that `sha256sum` prints for the new one. Also the
 * proof of an entry with a key.
 */
import {createHmac, hash} from 'node:crypto';

/** `digest`: of the entries before this one; null before the first. */
export function withEntry(digest: string | null, sha256: string, name: string): string {
  return hash('sha256', `${digest ?? ''}${sha256}  ${name}\n`);
}

/** HMAC-SHA256 in hex, with the key of a lease, of the name of a shard object and of its SHA-256. */
export function proofOf(lease_key: string, {object, sha256}: {object: string; sha256: string}): string {
  return createHmac('sha256', lease_key).update(`${object}\n${sha256}`).digest('hex');
}
