/** The digest of a list that grows: SHA-256 of the digest before each entry, and of the line that `sha256sum` prints for the entry. */
import {hash} from 'node:crypto';

/** `digest`: of the entries before this one; null before the first. */
export function withEntry(digest: string | null, sha256: string, name: string): string {
  return hash('sha256', `${digest ?? ''}${sha256}  ${name}\n`);
}
