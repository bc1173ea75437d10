import {lstatSync, readFileSync, rmSync, type Stats, writeFileSync} from 'node:fs';

/** Text of a private file. It is created if it is missing, readable by other users, or malformed. */
export function privateFile(file: string, form: RegExp, make: () => string): string {
  const kept = readPrivate(file);
  if (kept !== undefined && form.test(kept)) return kept;
  const text = make();
  writePrivate(file, text);
  return text;
}

/** Replaces a file by one that only this user can read and write. */
export function writePrivate(file: string, text: string): void {
  rmSync(file, {force: true});
  writeFileSync(file, text, {mode: 0o600, flag: 'wx'});
}

/** Text of a regular file of this user that no other user can read or write; undefined for any other file. */
export function readPrivate(file: string): string | undefined {
  const stat = statOf(file);
  const isPrivate = stat?.isFile() === true && stat.uid === process.getuid?.() && (stat.mode & 0o077) === 0;
  return isPrivate ? readFileSync(file, 'utf8') : undefined;
}

/** Status of a file; undefined if the file is missing or its folder belongs to another user. */
function statOf(file: string): Stats | undefined {
  try {
    return lstatSync(file);
  } catch {
    return undefined;
  }
}
