/**
 * Counts words that a sentence never needs, such as "whoever", in every file. The counts in `words.json` may only shrink:
 * `node test/words.ts` fails where a file has more, and `node test/words.ts --lower` stores lower counts.
 */
import {execFileSync} from 'node:child_process';
import {existsSync, readFileSync, writeFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import {ROOT} from './support/process.ts';

export type Found = {line: number; word: string};
export type Counts = Record<string, number>;

const ALLOWED = fileURLToPath(new URL('./words.json', import.meta.url));
const SOURCES = ['*.ts', '*.mjs', '*.py', '*.sh', '*.md', '*.tf'];
/** These two files quote the words. */
const QUOTING = ['test/words.ts', 'test/unit/words.test.ts'];

const ANYWHERE = /\b(whoever|nobody|somebody|anybody|of which|meanwhile)\b/gi;
/** A comment starts with a noun or a verb. */
const AT_START = /^\s*(?:\*|\/\/|#|\/\*\*)\s*(What|Those|One that|It)\b/;

export function findWords(text: string): Found[] {
  return text.split('\n').flatMap((line, index) => {
    const start = AT_START.exec(line)?.[1];
    const words = [...line.matchAll(ANYWHERE)].map(([word]) => word);
    return [...(start ? [start] : []), ...words].map(word => ({line: index + 1, word}));
  });
}

/** The files with more words than allowed. */
export function grown(counts: Counts, allowed: Counts): string[] {
  return Object.keys(counts).filter(file => (counts[file] ?? 0) > (allowed[file] ?? 0));
}

/** No count is higher than the allowed one. */
export function lowered(counts: Counts, allowed: Counts): Counts {
  const lower = Object.entries(counts).map(([file, count]) => [file, Math.min(count, allowed[file] ?? 0)]);
  return Object.fromEntries(lower.filter(([, count]) => count !== 0));
}

function main(lower: boolean): void {
  const found = new Map(sources().map(file => [file, findWords(readFileSync(`${ROOT}${file}`, 'utf8'))]));
  const counts = Object.fromEntries([...found].map(([file, {length}]) => [file, length]));
  const allowed: Counts = JSON.parse(readFileSync(ALLOWED, 'utf8'));
  if (lower) writeFileSync(ALLOWED, `${JSON.stringify(lowered(counts, allowed), null, 2)}\n`);
  const files = grown(counts, allowed);
  for (const file of files) {
    for (const {line, word} of found.get(file) ?? []) console.log(`${file}:${line}: "${word}"`);
    console.log(
      `${file} has ${counts[file]} such words, allowed are ${allowed[file] ?? 0}: name the thing\n`,
    );
  }
  process.exitCode = files.length === 0 ? 0 : 1;
}

function sources(): string[] {
  const args = ['ls-files', '--cached', '--others', '--exclude-standard', '--', ...SOURCES];
  const files = execFileSync('git', args, {cwd: ROOT, encoding: 'utf8'}).trim().split('\n').sort();
  return files.filter(file => existsSync(`${ROOT}${file}`) && !QUOTING.includes(file));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main(process.argv.includes('--lower'));
