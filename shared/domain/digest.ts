/** The digest of a list that grows: SHA-256 of the digest before each entry, and of the line that `sha256sum` prints for the entry. */
import {hash} from 'node:crypto';

/** `entries`: the entries before this one. Null where the SHA-256 of an entry is unknown. */
export function withEntry(
  {digest, entries}: {digest: string | null; entries: number},
  sha256: string | null,
  name: string,
): string | null {
  const before = entries === 0 ? '' : digest;
  return before === null || sha256 === null ? null : hash('sha256', `${before}${sha256}  ${name}\n`);
}
