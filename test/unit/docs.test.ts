/** Links and commands of the pages that people read. */
import assert from 'node:assert/strict';
import {existsSync} from 'node:fs';
import {dirname, join, relative} from 'node:path';
import {anchorsOf, blocksOf, commandsOf, linksOf, PAGES, readPage} from '../support/docs/doc-blocks.ts';
import {filesOf} from '../support/docs/document-paths.ts';
import {namedCommands, whyUnknown, whyWrong} from '../support/docs/known-commands.ts';
import {ROOT} from '../support/machine/process.ts';

/** Page with the commands of other systems. */
const FOREIGN = 'docs/inside/from-the-seeds.md';

/** Sources whose texts reach a person. */
const SOURCES = [
  'cli/*.ts',
  'client/*.ts',
  'emulator/*.ts',
  'functions/*.ts',
  'shared/*.ts',
  'terraform/*.tf',
  'worker-startup/*.sh',
];

const INFOS = ['sh run', 'sh background', 'sh cloud', 'sh setup'];

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

  const unknown: {command: string; says: RegExp}[] = [
    {command: 'gleaner run strat RUN', says: /no command strat/},
    {command: 'npx gleaner status --jsn', says: /no option --jsn/},
    {command: 'gleaner logs X --tail N', says: /^$/},
    {command: 'gleaner exec X -- ls --all', says: /^$/},
    {command: 'gcloud storage rm gs://X --force', says: /--force/},
  ];
  for (const {command, says} of unknown)
    it(`the check of sentences judges: ${command}`, () => {
      assert.match(whyUnknown(command) ?? '', says);
    });

  it('the check of sentences finds commands of prose and of sources', () => {
    const text = ['run `gleaner run retry my-run`, \\`gcloud storage ls $', '{at}\\` and `name`'].join('');
    assert.deepEqual(namedCommands(text), ['gleaner run retry my-run', 'gcloud storage ls X']);
  });

  it('and texts of the sources name only commands and options that exist', () => {
    const files = filesOf('README.md', 'CONTRIBUTING.md', 'docs/*.md', '*/README.md', ...SOURCES);
    const wrong = files
      .filter(file => file !== FOREIGN)
      .flatMap(file =>
        namedCommands(readPage(file)).flatMap(command => {
          const why = whyUnknown(command);
          return why === undefined ? [] : `${file}: ${command}: ${why}`;
        }),
      );
    assert.deepEqual(wrong, []);
  });

  for (const document of filesOf('README.md', 'CONTRIBUTING.md', 'docs/*.md', '*/README.md'))
    it(`${document} has only links to files and headings that exist`, () => {
      assert.deepEqual(brokenLinks(document, readPage(document)), []);
    });

  it('the check of links finds missing files and headings, and no addresses', () => {
    const links = '[a](gone.md#part), [b](https://example.com/a.md), [c](jobs.md#gone), [d](../../README.md)';
    assert.deepEqual(brokenLinks('docs/inside/rules.md', links), ['gone.md#part', 'jobs.md#gone']);
  });

  it('excerpts of programs are as in the files that they name', () => {
    const excerpts = PAGES.flatMap(page => blocksOf(page)).filter(({info}) =>
      info.startsWith('python from '),
    );
    const wrong = excerpts.filter(
      ({info, lines}) => !readPage(info.slice('python from '.length)).includes(lines.join('\n')),
    );
    assert.deepEqual([excerpts.length > 0, wrong], [true, []]);
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
