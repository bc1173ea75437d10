/**
 * Counts the lines of all tracked text by top folder, generated text included, and fails above `line-budget.json`. Locks, fixtures and
 * golden files do not count. To raise a number is a commit of its own, which says why.
 */
import {execFileSync} from 'node:child_process';
import {existsSync, readFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const UNCOUNTED = /(^|\/)(package-lock\.json|[^/]+\.lock|fixtures\/.*|golden\/.*)$/;
/** Name of the files of the repository's root in the budget. */
const ROOT_FILES = '.';

export type Lines = Record<string, number>;

/** Lines by top folder. `files`: the bytes of each file, by its path. Bytes with a NUL are no text. */
export function countLines(files: Iterable<readonly [string, Buffer]>): Lines {
  const lines: Lines = {};
  for (const [path, bytes] of files) {
    if (UNCOUNTED.test(path) || bytes.includes(0)) continue;
    const folder = path.includes('/') ? (path.split('/', 1)[0] ?? '') : ROOT_FILES;
    lines[folder] = (lines[folder] ?? 0) + bytes.toString('latin1').split('\n').length - 1;
  }
  return lines;
}

/** A row for each folder with its lines and its limit, and the folders that break the budget. */
export function compareLines(lines: Lines, budget: Lines): {rows: string[]; problems: string[]} {
  const folders = [...new Set([...Object.keys(budget), ...Object.keys(lines)])].sort();
  const rows = folders.map(folder => {
    const [count, most] = [lines[folder] ?? 0, budget[folder] ?? 0];
    return `lines ${String(count).padStart(7)} of ${String(most).padStart(7)}  ${folder}`;
  });
  const problems = folders.flatMap(folder => {
    const [count, most] = [lines[folder], budget[folder]];
    if (most === undefined) return [`${folder} has no limit in line-budget.json`];
    if (count === undefined) return [`${folder} has a limit in line-budget.json, and no file`];
    return count > most ? [`${folder} has ${count - most} lines more than line-budget.json allows`] : [];
  });
  return {rows, problems};
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const tracked = execFileSync('git', ['ls-files', '-z'], {cwd: ROOT, encoding: 'utf8'}).split('\0');
  const files = tracked.filter(path => path !== '' && existsSync(ROOT + path));
  const lines = countLines(files.map(path => [path, readFileSync(ROOT + path)] as const));
  const budget = JSON.parse(readFileSync(`${ROOT}line-budget.json`, 'utf8')) as Lines;
  const {rows, problems} = compareLines(lines, budget);
  for (const line of [...rows, ...problems.map(problem => `FAILED: ${problem}`)]) console.log(line);
  process.exitCode = problems.length > 0 ? 1 : 0;
}
