/** Links and commands of the pages that people read. */
import assert from 'node:assert/strict';
import {existsSync} from 'node:fs';
import {dirname, join, relative} from 'node:path';
import type {Command} from 'commander';
import {gleanerProgram, leavesOf} from '../../cli/program.ts';
import packages from '../../package.json' with {type: 'json'};
import {anchorsOf, blocksOf, commandsOf, linksOf, PAGES, readPage, wordsOf} from '../support/doc-blocks.ts';
import {filesOf} from '../support/document-paths.ts';
import {GCLOUD} from '../support/gcloud-flags.ts';
import {ROOT} from '../support/process.ts';

const INFOS = ['sh run', 'sh background', 'sh cloud', 'sh setup'];

/** Why `gleaner ARGS` is no command, or undefined. The command itself does not run. */
async function whyNoCommand(args: string[]): Promise<string | undefined> {
  const program = gleanerProgram();
  let said = '';
  const quiet = (command: Command) => {
    command.exitOverride().configureOutput({writeErr: text => (said += text), writeOut: () => {}});
    command.commands.forEach(quiet);
  };
  quiet(program);
  for (const leaf of leavesOf(program)) leaf.action(() => {});
  try {
    await program.parseAsync(args, {from: 'user'});
    return undefined;
  } catch (error) {
    const code = (error as {code?: string}).code ?? '';
    return /help|version/.test(code) ? undefined : said || String(error);
  }
}

function whyNoGcloud(words: string[]): string | undefined {
  const verb = Object.keys(GCLOUD).find(each => words.join(' ').startsWith(each));
  if (verb === undefined) return `gcloud ${words.join(' ')} is not in test/support/gcloud-flags.ts`;
  const flags = words.filter(word => word.startsWith('--')).map(word => word.split('=')[0] ?? '');
  const unknown = flags.filter(flag => !GCLOUD[verb]?.includes(flag));
  return unknown.length > 0 ? `gcloud ${verb} has no ${unknown.join(', no ')} in the table` : undefined;
}

/** Why a line of a document cannot work, or undefined. */
async function whyWrong(command: string): Promise<string | undefined> {
  const [program = '', ...words] = wordsOf(command);
  if (program === 'npx' && words[0] === 'gleaner') return whyNoCommand(words.slice(1));
  if (program === 'gleaner') return whyNoCommand(words);
  if (program === 'gcloud') return whyNoGcloud(words);
  if (program !== 'npm') return undefined;
  if (words[0] === 'start') return whyNoCommand(['demo', ...words.slice(1).filter(word => word !== '--')]);
  if (words[0] !== 'run') return undefined;
  return words[1] !== undefined && words[1] in packages.scripts
    ? undefined
    : `there is no script ${words[1]}`;
}

/** Targets of relative links without a file or a heading. */
function brokenLinks(page: string, text: string): string[] {
  return linksOf(text).filter(target => {
    if (/^[a-z]+:/.test(target)) return false;
    const [path = '', anchor] = target.split('#');
    const file = path === '' ? page : relative(ROOT, join(ROOT, dirname(page), path));
    if (!existsSync(ROOT + file)) return true;
    return anchor !== undefined && !anchorsOf(readPage(file)).includes(anchor);
  });
}

describe('documents', () => {
  const wrong: {command: string; says: RegExp}[] = [
    {command: 'gleaner run strat my-run', says: /strat/},
    {command: 'npx gleaner status --jsn', says: /--jsn/},
    {command: 'gleaner run pause', says: /missing required argument/},
    {command: 'npm run nothing', says: /nothing/},
    {command: 'npm start -- --no-such', says: /--no-such/},
    {command: 'gcloud storage cp a b --force', says: /--force/},
    {command: 'gcloud storage destroy a', says: /destroy/},
  ];
  for (const {command, says} of wrong)
    it(`the check of commands refuses: ${command}`, async () => {
      assert.match((await whyWrong(command)) ?? '', says);
    });

  for (const document of filesOf('README.md', 'CONTRIBUTING.md', 'docs/*.md', '*/README.md'))
    it(`${document} has only links to files and headings that exist`, () => {
      assert.deepEqual(brokenLinks(document, readPage(document)), []);
    });

  it('the check of links finds missing files and headings, and no addresses', () => {
    const links = '[a](gone.md#part), [b](https://example.com/a.md), [c](jobs.md#gone), [d](../README.md)';
    assert.deepEqual(brokenLinks('docs/rules.md', links), ['gone.md#part', 'jobs.md#gone']);
  });

  for (const page of PAGES) {
    it(`${page} says of each block of sh where it runs`, () => {
      const plain = blocksOf(page).filter(({info}) => /^(sh|bash)\b/.test(info) && !INFOS.includes(info));
      assert.deepEqual(
        plain.map(({line, info}) => `${page}:${line}: ${info}`),
        [],
      );
    });

    it(`${page} has only commands with known options`, async () => {
      const found: string[] = [];
      for (const block of blocksOf(page).filter(({info}) => info.startsWith('sh')))
        for (const command of commandsOf(block)) {
          const why = await whyWrong(command);
          if (why !== undefined) found.push(`${page}:${block.line}: ${command}: ${why.trim()}`);
        }
      assert.deepEqual(found, []);
    });
  }
});
