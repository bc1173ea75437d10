/** The paths in README.md and docs name files of the repository. */
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {filesOf, foldersOf, isIn, isPath} from '../support/docs/document-paths.ts';
import {ROOT} from '../support/machine/process.ts';

/** First cells of the seeds' tables quote the seeds. */
function linesAboutFiles(document: string, text: string): string[] {
  const lines = text.split('\n');
  if (document !== 'docs/inside/from-the-seeds.md') return lines;
  return lines.map(line => line.replace(/^\|[^|]*\|/, '|'));
}

/** Line of a drawn walk: branches, the path of a file, and what the file does. */
const DRAWN = /^[│├└─ ]*([\w-]+\/[\w/.-]+\.ts)(?: |$)/gm;

/** Paths in backticks, and files of drawn walks. Other blocks of code are left out. */
function pathsIn(document: string, text: string, folders: ReadonlySet<string>): string[] {
  const drawn = [...text.matchAll(DRAWN)].map(([, path = '']) => path);
  const prose = text.replace(/^```[\s\S]*?^```/gm, '');
  const quoted = linesAboutFiles(document, prose).flatMap(line =>
    [...line.matchAll(/`([^`]+)`/g)].map(([, path = '']) => path),
  );
  return [...quoted, ...drawn].filter(path => isPath(path, folders));
}

describe('the documents', () => {
  const files = filesOf();
  const folders = foldersOf(files);
  const read = (document: string) => readFileSync(ROOT + document, 'utf8');

  // A decision record names the files of its day.
  for (const document of filesOf('README.md', 'CONTRIBUTING.md', ':(glob)docs/*.md'))
    it(`the paths in ${document} exist in the repository`, () => {
      const missing = pathsIn(document, read(document), folders).filter(path => !isIn(files, path));
      assert.deepEqual(missing, []);
    });

  const text = [
    'Read `shared/gone.ts`, `gone.sh`, `shared/ports/ports.ts` and `domain/names.ts`.',
    '`run.json`, `datasets/RUN/` and `shared/*.ts` are no files of the repository.',
    '```sh',
    '`shared/quoted.ts`',
    '├─ shared/ports/ports.ts  reads',
    '│  └─ shared/drawn.ts  writes',
    '```',
  ].join('\n');

  it('the reader of paths finds missing paths, and no objects or patterns', () => {
    const missing = pathsIn('README.md', text, folders).filter(path => !isIn(files, path));
    assert.deepEqual(missing, ['shared/gone.ts', 'gone.sh', 'shared/drawn.ts']);
  });
});
