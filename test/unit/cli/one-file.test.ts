/** The programs as one file each: when they hold, and what its errors name. */
import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {renameSync, rmSync, truncateSync} from 'node:fs';
import {createRequire} from 'node:module';
import {join} from 'node:path';
import {promisify} from 'node:util';
import {ROOT} from '../../../cli/build/functions.ts';
import {keepFiles, keptFile, sourceStack} from '../../../emulator/functions/one-file.ts';
import {Folder} from '../../support/machine/folder.ts';

const SOURCES = {
  'part.ts': 'export const where: string = import.meta.url;\n',
  'main.ts': [
    "import {where} from './part.ts';",
    'type Failure = Error;',
    'function fail(): Failure {',
    '  return new Error(where);',
    '}',
    'export const ended = Promise.resolve(fail().stack);',
  ].join('\n'),
  'emulator/functions/one-file.ts': '',
  'node_modules/.package-lock.json': '{}',
  'package.json': '{}',
};

describe('The program as one file', () => {
  const folder = new Folder(afterEach);
  const root = () => folder.at('program');
  const kept = (where = root()) => keptFile(where, 'main');

  beforeEach(async () => {
    for (const [name, text] of Object.entries(SOURCES)) folder.put(`program/${name}`, text);
    // The sources are new: the file of a program that starts now is not kept.
    await keepFiles(root(), {main: 'main.ts'});
    assert.equal(kept(), undefined);
    await keepFiles(root(), {main: 'main.ts'}, Date.now() + 5000);
  });

  it('gives each module the address of its source, and names the source in a stack', async () => {
    const {ended} = createRequire(import.meta.url)(kept() ?? '');
    assert.match(
      sourceStack(await ended),
      /^Error: file:\/\/\S+\/program\/part\.ts\n {4}at fail \(\S+\/program\/main\.ts:4:10\)/,
    );
  });

  for (const name of Object.keys(SOURCES))
    it(`does not hold after a change of ${name}`, () => {
      folder.put(`program/${name}`, '// other\n');
      assert.equal(kept(), undefined);
    });

  it('does not hold without its file, or with a part of it', () => {
    truncateSync(kept() ?? '', 10);
    assert.equal(kept(), undefined);
  });

  it('names the place in the file where its map is gone', async () => {
    const file = kept() ?? '';
    rmSync(`${file}.map`);
    assert.match(sourceStack(await createRequire(import.meta.url)(file).ended), /main\.cjs:\d/);
  });

  it('starts the command line and the functions', async () => {
    await keepFiles(ROOT, undefined, Date.now() + 5000);
    for (const name of ['cli', 'functions']) assert.ok(keptFile(ROOT, name));
    const {stdout} = await promisify(execFile)(process.execPath, [join(ROOT, 'cli/gleaner.mjs'), '--help']);
    assert.match(stdout, /Usage: gleaner/);
  });

  it('does not hold in another folder', () => {
    assert.ok(kept());
    renameSync(root(), folder.at('moved'));
    assert.equal(kept(folder.at('moved')), undefined);
  });

  it('replaces the file of older sources', async () => {
    folder.put('program/part.ts', "export const where = 'elsewhere';\n");
    await keepFiles(root(), {main: 'main.ts'}, Date.now() + 2 * 3600 * 1000);
    assert.ok(kept());
    assert.equal(folder.names('program/node_modules/.cache/gleaner').length, 2);
  });
});
