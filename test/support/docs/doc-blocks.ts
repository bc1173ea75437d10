/** Fenced blocks, links and anchors of the pages that people read. */
import {globSync, readFileSync} from 'node:fs';
import {ROOT} from '../machine/process.ts';

/** `info`: the words after the fence, such as `sh run`. `line`: its line in the page, from 1. */
export type Block = {page: string; line: number; info: string; lines: string[]};

export const PAGES: readonly string[] = [
  'README.md',
  'CONTRIBUTING.md',
  ...globSync('docs/{,inside/}*.md', {cwd: ROOT}).sort(),
  ...globSync('worker-startup/*/README.md', {cwd: ROOT}).sort(),
];

export function readPage(page: string): string {
  return readFileSync(ROOT + page, 'utf8');
}

export function blocksOf(page: string, text = readPage(page)): Block[] {
  const blocks: Block[] = [];
  let open: Block | undefined;
  for (const [index, line] of text.split('\n').entries()) {
    const fence = /^```(.*)$/.exec(line);
    if (!fence) open?.lines.push(line);
    else if (open) {
      blocks.push(open);
      open = undefined;
    } else open = {page, line: index + 1, info: (fence[1] ?? '').trim(), lines: []};
  }
  return blocks;
}

/** Commands of a block of sh: lines with their continuations, without comments. */
export function commandsOf({lines}: Block): string[] {
  const joined = lines
    .join('\n')
    .replaceAll(/\\\n\s*/g, ' ')
    .split('\n');
  return joined.map(line => line.replace(/(^|\s{2,})#.*$/, '').trim()).filter(line => line !== '');
}

/** Words of a simple command, with quotes removed. The name of a variable is its value. Ends before a pipe, a redirection or a further command. */
export function wordsOf(command: string): string[] {
  const words: string[] = [];
  for (const [word] of command.matchAll(/(?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])+/g)) {
    if (/^(?:[|&;]+|\d?>.*|<.*|#)$/.test(word)) break;
    const plain = word.replaceAll(/'([^']*)'|"([^"]*)"/g, (_, single, double) => single ?? double);
    words.push(plain.replace(/^\$(\w+)$/, '$1'));
  }
  return words;
}

/** Targets of the links of a page outside of fenced blocks. */
export function linksOf(text: string): string[] {
  const prose = text.replaceAll(/^```[\s\S]*?^```/gm, '').replaceAll(/`[^`\n]*`/g, '');
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = '']) => target);
}

/** Anchors of the headings of a page, as GitHub makes them. */
export function anchorsOf(text: string): string[] {
  const headings = text.replaceAll(/^```[\s\S]*?^```/gm, '').matchAll(/^#{1,6} (.+)$/gm);
  return [...headings].map(([, heading = '']) =>
    heading
      .trim()
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-'),
  );
}
