/** Paths of the repository that a document names. */
import {execFileSync} from 'node:child_process';
import {existsSync} from 'node:fs';
import {ROOT} from '../machine/process.ts';

/** Extensions of source files. JSON and JSONL are also names of objects in the bucket, so they count in a folder of the repository alone. */
const SOURCE = /\.(ts|mjs|py|sh|lock|md|tf)$/;
/** A pattern, a place-holder or a command is no path. */
const NO_PATH = /[\s*{}<>$…:=,"'()]/;

/** Files of the repository, new ones included. */
export function filesOf(...patterns: string[]): string[] {
  const args = ['ls-files', '--cached', '--others', '--exclude-standard', '--', ...patterns];
  const listed = execFileSync('git', args, {cwd: ROOT, encoding: 'utf8'}).trim().split('\n');
  return listed.filter(file => existsSync(ROOT + file));
}

/** Top folders of the repository. */
export function foldersOf(files: readonly string[]): Set<string> {
  return new Set(files.flatMap(file => (file.includes('/') ? file.slice(0, file.indexOf('/')) : [])));
}

/** True for a text in backticks that is a path. */
export function isPath(text: string, folders: ReadonlySet<string>): boolean {
  return !NO_PATH.test(text) && (SOURCE.test(text) || folders.has(text.slice(0, text.indexOf('/'))));
}

/** True if a file or folder of the repository has this path, or a path that ends with it. */
export function isIn(files: readonly string[], path: string): boolean {
  const bare = path.replace(/\/$/, '');
  return files.some(file => `/${file}/`.includes(`/${bare}/`));
}
