/** Finds words that a sentence never needs, such as "whoever", in every file: `node test/words.ts` fails where one is. */
import {execFileSync} from 'node:child_process';
import {existsSync, readFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import {ROOT} from './support/process.ts';

export type Found = {line: number; word: string};

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

function main(): void {
  for (const file of sources())
    for (const {line, word} of findWords(readFileSync(`${ROOT}${file}`, 'utf8'))) {
      console.log(`${file}:${line}: "${word}": name the thing`);
      process.exitCode = 1;
    }
}

function sources(): string[] {
  const args = ['ls-files', '--cached', '--others', '--exclude-standard', '--', ...SOURCES];
  const files = execFileSync('git', args, {cwd: ROOT, encoding: 'utf8'}).trim().split('\n').sort();
  return files.filter(file => existsSync(`${ROOT}${file}`) && !QUOTING.includes(file));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
